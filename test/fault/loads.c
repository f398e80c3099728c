/* loads.c: a host that is not linked with us: it loads and unloads the door. usage: loads CASE DOOR
 * In: the case's name, the door's path    Out: exit status 0, or a line on standard error
 * Runs: threads, as each case says        Locks: none
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 200, THREADS = 50 };

static const char *door;

static void loads_need(int truth, const char *what)
{
	const char *why = truth ? NULL : dlerror();

	if (truth)
		return;
	dprintf(2, "%s: %s\n", what, why == NULL ? "" : why);
	_exit(3);
}

/* Everything by name, as UCX and NCCL do it. */
static void use(void *handle)
{
	__typeof__(&ibv_get_device_list) get = dlsym(handle, "ibv_get_device_list");
	__typeof__(&ibv_free_device_list) put = dlsym(handle, "ibv_free_device_list");
	__typeof__(&ibv_open_device) open_device = dlsym(handle, "ibv_open_device");
	__typeof__(&ibv_close_device) close_device = dlsym(handle, "ibv_close_device");
	struct ibv_device **list;
	struct ibv_context *context;

	loads_need(get && put && open_device && close_device, "dlsym");
	list = get(NULL);
	loads_need(list != NULL && list[0] != NULL, "no device");
	context = open_device(list[0]);
	loads_need(context != NULL, "open");
	put(list);
	loads_need(close_device(context) == 0, "close");
}

static void case_again(void)
{
	void *first = NULL;

	for (int i = 0; i < ROUNDS; i++) {
		void *handle = dlopen(door, RTLD_NOW | (i % 2 ? RTLD_LOCAL : RTLD_GLOBAL));
		void *symbol;

		loads_need(handle != NULL, "dlopen");
		symbol = dlsym(handle, "ibv_get_device_list");
		/* it stays where it is: threads of ours run in it */
		loads_need(first == NULL || symbol == first, "the door has moved");
		first = symbol;
		if (i % 20 == 0)
			use(handle);
		loads_need(dlclose(handle) == 0, "dlclose");
		usleep(i % 50 == 0 ? 20000 : 0);
	}
}

static void *loads_thread(void *arg)
{
	for (int i = 0; i < 10; i++) {
		void *handle = dlopen(door, RTLD_NOW);

		loads_need(handle != NULL, "dlopen");
		use(handle);
		loads_need(dlclose(handle) == 0, "dlclose");
	}
	return NULL;
}

static void case_from_many(void)
{
	pthread_t thread[THREADS];

	for (int i = 0; i < THREADS; i++)
		loads_need(pthread_create(&thread[i], NULL, loads_thread, NULL) == 0, "thread");
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

int main(int argc, char **argv)
{
	loads_need(argc == 3, "usage: loads again|from_many DOOR");
	door = argv[2];
	if (strcmp(argv[1], "again") == 0)
		case_again();
	else
		case_from_many();
	return 0;
}
