/*
 * break_queue_pair.c - puts a queue pair into the error state in the middle of a run, as a reset of
 * the card does: $DPB_BREAK_MS after it was connected, the first that a process connects on the
 * RDMA device $DPB_BREAK_DEVICE.
 */
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int modify_function(struct ibv_qp *, struct ibv_qp_attr *, int);

/* The library is a plugin's: it is not among those that RTLD_NEXT finds. */
static modify_function *library_modify(void)
{
    void *library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
    modify_function *modify = NULL;
    if (library)
        *(void **)&modify = dlsym(library, "ibv_modify_qp");
    if (!modify)
        abort();
    return modify;
}

static void *break_later(void *queue)
{
    const char *text = getenv("DPB_BREAK_MS");
    long ms = text ? strtol(text, NULL, 10) : 0;
    struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    struct ibv_qp_attr broken = {.qp_state = IBV_QPS_ERR};
    nanosleep(&pause, NULL);
    library_modify()(queue, &broken, IBV_QP_STATE);
    return NULL;
}

int ibv_modify_qp(struct ibv_qp *queue, struct ibv_qp_attr *attributes, int mask)
{
    static int begun;
    const char *device = getenv("DPB_BREAK_DEVICE");
    int error = library_modify()(queue, attributes, mask);
    pthread_t thread;
    if (error == 0 && attributes->qp_state == IBV_QPS_RTS && device &&
        strcmp(queue->context->device->name, device) == 0 && !begun++)
        pthread_create(&thread, NULL, break_later, queue);
    return error;
}
