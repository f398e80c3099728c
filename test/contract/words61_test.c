/* words61_test.c: the kernel's words that code of Linux 6.1 finds behind an rdma/ header alone, for
 * Linux's header includes theirs: they are there if the program has them on its path.
 * In:    -    Out: -    Runs: the test's thread, a worker
 */
#include <rdma/rdma_cm.h>

#include "rig.h"

struct ulp {
	struct kref refs;
	struct mutex lock;
	spinlock_t spin;
	struct list_head list;
	struct completion ended;
	wait_queue_head_t wait;
	struct work_struct work;
	struct delayed_work later;
	struct rw_semaphore sem;
	struct sg_table table;
	refcount_t users;
	atomic_t state;
	dma_addr_t address;
};

static void ulp_work(struct work_struct *work)
{
	struct ulp *ulp = container_of(work, struct ulp, work);

	atomic_set(&ulp->state, 1);
	wake_up(&ulp->wait);
	complete(&ulp->ended);
}

static void ulp_free(struct kref *kref)
{
	kfree(container_of(kref, struct ulp, refs));
}

static void words__come_with_the_header(void **state)
{
	struct ulp *ulp = kzalloc_node(sizeof(*ulp), GFP_KERNEL, ibdev_to_node(rig.dev));

	assert_non_null(ulp);
	kref_init(&ulp->refs);
	mutex_init(&ulp->lock);
	spin_lock_init(&ulp->spin);
	init_rwsem(&ulp->sem);
	INIT_LIST_HEAD(&ulp->list);
	init_completion(&ulp->ended);
	init_waitqueue_head(&ulp->wait);
	refcount_set(&ulp->users, 1);
	INIT_WORK(&ulp->work, ulp_work);
	INIT_DELAYED_WORK(&ulp->later, ulp_work);
	queue_work(system_wq, &ulp->work);
	wait_event(ulp->wait, atomic_read(&ulp->state) == 1);
	wait_for_completion(&ulp->ended);
	flush_work(&ulp->work);
	assert_int_equal(sg_alloc_table(&ulp->table, 2, GFP_KERNEL), 0);
	sg_free_table(&ulp->table);
	ulp->address = ib_dma_map_single(rig.dev, ulp, sizeof(*ulp), DMA_TO_DEVICE);
	assert_int_equal(ib_dma_mapping_error(rig.dev, ulp->address), 0);
	kref_put(&ulp->refs, ulp_free);
}

static void dev_name__is_the_device_name(void **state)
{
	struct ib_device *device = rig.dev;

	assert_string_equal(dev_name(&device->dev), device->name);
	assert_int_equal(ibdev_to_node(device), NUMA_NO_NODE);
	assert_int_equal(dev_to_node(device->dev.parent), NUMA_NO_NODE);
	dev_info(&device->dev, "%d ports\n", (int)device->phys_port_cnt);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(words__come_with_the_header),
		cmocka_unit_test(dev_name__is_the_device_name),
	};

	return rig_run_tests(tests);
}
