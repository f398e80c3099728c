int attach(void)
{
	gets(0);
	return socket(1, 2, 3);
}
