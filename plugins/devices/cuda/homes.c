/* homes.c - on which GPU a queue is: see streams.h. */
#include <pthread.h>
#include <stdatomic.h>

#include "streams.h"

/* cudaStreamGetDevice would return a stream's GPU, but needs a driver of CUDA 12.8 or later; older
 * drivers run a build for 12.8, too. Several threads may look while one opens or closes. */
enum { MOST_QUEUES = 64 };
static struct home {
    _Atomic(cudaStream_t) stream; /* NULL: free */
    int id;
} homes[MOST_QUEUES];
static pthread_mutex_t homes_lock = PTHREAD_MUTEX_INITIALIZER;

/* NULL: there is none. */
static struct home *home_of(cudaStream_t stream)
{
    for (int i = 0; i < MOST_QUEUES; i++) {
        if (atomic_load_explicit(&homes[i].stream, memory_order_acquire) == stream)
            return &homes[i];
    }
    return NULL;
}

dpb_status cuda_home_remember(cudaStream_t stream, int id)
{
    pthread_mutex_lock(&homes_lock);
    struct home *home = home_of(NULL);
    if (home) {
        home->id = id;
        atomic_store_explicit(&home->stream, stream, memory_order_release);
    }
    pthread_mutex_unlock(&homes_lock);
    return home ? DPB_OK
                : cuda_host->fail(DPB_UNSUPPORTED, "device cuda: %d queues at most are possible",
                                  MOST_QUEUES);
}

void cuda_home_forget(cudaStream_t stream)
{
    struct home *home = home_of(stream);
    if (home)
        atomic_store_explicit(&home->stream, NULL, memory_order_release);
}

dpb_status cuda_turn_to(struct dpb_queue *queue)
{
    const struct home *home = home_of((cudaStream_t)queue);
    if (!home)
        return cuda_host->fail(DPB_USAGE, "device cuda: work for a queue that is not open");
    return CUDA_CALL(cudaSetDevice(home->id));
}
