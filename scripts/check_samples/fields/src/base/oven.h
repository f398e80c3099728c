/* oven.h: fields that say what guards them, and some that do not. */
struct oven {
	struct lock lock;
	int heat GUARDED_BY(lock), gas;
	int trays[3]; /* a comment that says GUARDED_BY(lock) is none */
	void (*bell)(struct oven *o, int times);
	char oven_pad[64];
	u32 users ATOMIC_ONLY;
	const char *name FIXED;
	struct {
		struct lock lock;
		int inner;
	} box GUARDS_ITSELF;
	pthread_mutex_t mutex FIXED;
	pthread_mutex_t theirs OWNED_BY(the application);
};
struct cook {
	struct lock hat_lock;
	struct lock spoon_lock ONE_AT_A_TIME, ladle_lock;
	struct lock apron_lock, sleeve_lock;
	int salt WRITTEN_UNDER(apron_lock, sleeve_lock);
	int pepper OWNED_BY(cook.ladle_lock);
	int herbs OWNED_BY(oven.lock);
};
struct plain {
	int free;
};
struct page {
	int number, lines[2];
	struct {
		int words;
	} text;
} OWNED_BY(the reader);
static const struct dish {
	const char *name;
	struct {
		int grams FIXED, price;
	} cost;
} *dish_find(int number);
static struct lock door_lock;
static int visitors GUARDED_BY(door_lock);
static struct lock idle_lock;
static struct lock bolt_lock ONE_AT_A_TIME;
