struct pot {
	int level FIXED;
};

struct lid {
	int size FIXED;
};

int pot_fill(struct pot *p)
{
	return p->level++;
}

int lid_lift(struct lid *l)
{
	return l->size;
}

int cup_wash(int cup)
{
	return cup;
}
