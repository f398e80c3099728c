int used;
