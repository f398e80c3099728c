struct pot {
	int depth FIXED;
};

int pot_empty(struct pot *p)
{
	return p->depth--;
}

int lid_turn(int by)
{
	return by;
}
