int lid_close(int by)
{
	return by;
}
