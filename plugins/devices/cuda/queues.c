/*
 * queues.c - arenas in the GPU's memory, for core and for strategies: see dpbench/queue.h. A queue
 * is a stream, an event a CUDA event; memory is shared between processes by CUDA's handles (IPC).
 *
 * Memory of a process on another GPU is mapped by the own GPU where the two are peers: kernels may
 * read it, and copies go directly. Where they are not it is mapped by its own GPU, which this
 * process then has a context on, and the driver takes copies through the host's memory.
 */
#include <stdio.h>
#include <stdlib.h>

#include "arenas.h"
#include "codecs.h"
#include "streams.h"

/* Memory that others map has blocks of its own: they map whole blocks. */
enum { SHARED_BLOCK = 2 << 20 };

/* ---- queues -------------------------------------------------------------------------------- */

static cudaStream_t stream_of(struct dpb_queue *queue)
{
    return (cudaStream_t)queue;
}

/* Work beside passes is short and others wait for it: its blocks run before those of passes. */
static dpb_status open_queue(void *device, struct dpb_queue **queue)
{
    const struct device *d = device;
    cudaStream_t stream = NULL;
    int least = 0, greatest = 0;
    CUDA_TRY(cudaSetDevice(d->id));
    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
    dpb_status status = cuda_home_remember(stream, d->id);
    if (status != DPB_OK) {
        cudaStreamDestroy(stream);
        return status;
    }
    *queue = (struct dpb_queue *)stream;
    return DPB_OK;
}

static void close_queue(struct dpb_queue *queue)
{
    if (!queue)
        return;
    cuda_home_forget(stream_of(queue));
    cudaStreamSynchronize(stream_of(queue)); /* cudaStreamDestroy does not wait */
    cudaStreamDestroy(stream_of(queue));
}

static dpb_status drain_queue(struct dpb_queue *queue)
{
    return CUDA_CALL(cudaStreamSynchronize(stream_of(queue)));
}

/* ---- events -------------------------------------------------------------------------------- */

static _Thread_local cudaEvent_t behind_capture;

void cuda_capturing(cudaEvent_t behind)
{
    behind_capture = behind;
}

static dpb_status poll_event(void *native, bool *fired)
{
    const struct cuda_event *event = native;
    cudaError_t code = cudaEventQuery(event->behind ? event->behind : event->native);
    *fired = code == cudaSuccess;
    if (code != cudaErrorNotReady)
        return cuda_check(NULL, NULL, "cudaEventQuery", code);
    cudaGetLastError(); /* it is no error */
    return DPB_OK;
}

static void destroy_event(void *native)
{
    struct cuda_event *event = native;
    cudaEventDestroy(event->native);
    free(event);
}

const struct dpb_event_source cuda_events = {.poll = poll_event, .destroy = destroy_event};

dpb_status cuda_event_make(unsigned flags, struct dpb_event **event)
{
    struct cuda_event *made = calloc(1, sizeof *made);
    if (!made)
        return cuda_no_memory();
    dpb_status status = CUDA_CALL(cudaEventCreateWithFlags(&made->native, flags));
    if (status != DPB_OK) {
        free(made);
        return status;
    }
    *event = cuda_host->event->adopt(&cuda_events, made); /* NULL: has destroyed it */
    return *event ? DPB_OK : DPB_NO_MEMORY;
}

static dpb_status new_event(void *device, struct dpb_event **event)
{
    const struct device *d = device;
    CUDA_TRY(cudaSetDevice(d->id));
    return cuda_event_make(cudaEventDefault, event);
}

static dpb_status record_as(struct dpb_queue *queue, struct dpb_event *event, cudaEvent_t behind)
{
    struct cuda_event *to = cuda_host->event->native(event, &cuda_events);
    const unsigned flags = behind ? cudaEventRecordExternal : cudaEventRecordDefault;
    if (!to)
        return cuda_host->fail(DPB_USAGE, "device cuda: an event that it has not made is recorded");
    DPB_TRY(cuda_turn_to(queue));
    to->behind = behind;
    return CUDA_CALL(cudaEventRecordWithFlags(to->native, stream_of(queue), flags));
}

static dpb_status record(struct dpb_queue *queue, struct dpb_event *event)
{
    return record_as(queue, event, NULL);
}

static dpb_status stamp(struct dpb_queue *queue, struct dpb_event *event)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    CUDA_TRY(cudaStreamIsCapturing(stream_of(queue), &status));
    if (status == cudaStreamCaptureStatusNone)
        return record(queue, event);
    if (!behind_capture)
        return cuda_host->fail(DPB_USAGE,
                               "device cuda: a stamp in a capture that is not backward's "
                               "with the exchange");
    return record_as(queue, event, behind_capture);
}

dpb_status cuda_await(cudaStream_t stream, struct dpb_event *event)
{
    const struct cuda_event *made = cuda_host->event->native(event, &cuda_events);
    if (made)
        return CUDA_CALL(cudaStreamWaitEvent(stream, made->native, 0));
    if (cuda_host->event->poll(event))
        return DPB_OK;
    return cuda_host->fail(DPB_USAGE,
                           "device cuda: work is to wait for an event of the host that has not "
                           "fired");
}

static dpb_status await_event(struct dpb_queue *queue, struct dpb_event *event)
{
    DPB_TRY(cuda_turn_to(queue));
    return cuda_await(stream_of(queue), event);
}

static dpb_status elapsed(const struct dpb_event *from, const struct dpb_event *to, int64_t *ns)
{
    const struct cuda_event *begin = cuda_host->event->native(from, &cuda_events);
    const struct cuda_event *end = cuda_host->event->native(to, &cuda_events);
    if (!begin || !end)
        return cuda_host->fail(DPB_USAGE, "device cuda: time of an event that it has not made");
    return cuda_elapsed(begin->native, end->native, ns);
}

/* ---- memory -------------------------------------------------------------------------------- */

static dpb_status too_large(const struct device *d, const char *name, uint64_t bytes)
{
    size_t free_bytes = 0, total = 0;
    cudaMemGetInfo(&free_bytes, &total);
    return cuda_host->fail(
        DPB_NO_MEMORY,
        "device cuda: %s take %llu MB of device memory, but %zu MB of %zu MB are "
        "free on device %d (%s); take a smaller model, or a GPU with more memory",
        name, (unsigned long long)(bytes / 1000000), free_bytes / 1000000, total / 1000000, d->id,
        d->name);
}

static dpb_status allocate(void *device, const char *name, uint64_t bytes, bool shared,
                           void **memory)
{
    const struct device *d = device;
    void *made = NULL;
    bool fits = false;
    if (shared)
        bytes = (bytes + SHARED_BLOCK - 1) / SHARED_BLOCK * SHARED_BLOCK;
    CUDA_TRY(cudaSetDevice(d->id));
    DPB_TRY(cuda_allocate(bytes, &made, &fits));
    if (!fits)
        return too_large(d, name, bytes);
    dpb_status status = CUDA_CALL(cudaMemsetAsync(made, 0, bytes, d->stream));
    DPB_THEN(status, CUDA_CALL(cudaStreamSynchronize(d->stream)));
    if (status == DPB_OK)
        *memory = made;
    else
        cudaFree(made);
    return status;
}

static void release(void *device, void *memory)
{
    const struct device *d = device;
    cudaSetDevice(d->id);
    cudaFree(memory);
}

/* The content of a handle's bytes. GPUs' numbers differ by process: the UUID names a GPU. */
struct handle {
    cudaIpcMemHandle_t memory;
    cudaUUID_t gpu;
};
_Static_assert(sizeof(struct handle) <= DPB_HANDLE_BYTES, "a handle has room for it");

static dpb_status uuid_of(int id, cudaUUID_t *uuid)
{
    struct cudaDeviceProp about;
    CUDA_TRY(cudaGetDeviceProperties(&about, id));
    *uuid = about.uuid;
    return DPB_OK;
}

static dpb_status describe(void *device, void *memory, struct dpb_memory_handle *handle)
{
    const struct device *d = device;
    struct handle made = {0};
    CUDA_TRY(cudaSetDevice(d->id));
    CUDA_TRY(cudaIpcGetMemHandle(&made.memory, memory));
    DPB_TRY(uuid_of(d->id, &made.gpu));
    *handle = (struct dpb_memory_handle){{0}};
    memcpy(handle->bytes, &made, sizeof made);
    return DPB_OK;
}

static dpb_status find_gpu(const cudaUUID_t *uuid, int *id)
{
    int n = 0;
    CUDA_TRY(cudaGetDeviceCount(&n));
    for (*id = 0; *id < n; ++*id) {
        cudaUUID_t one;
        DPB_TRY(uuid_of(*id, &one));
        if (memcmp(&one, uuid, sizeof one) == 0)
            return DPB_OK;
    }
    return cuda_host->fail(DPB_UNSUPPORTED,
                           "device cuda: a peer's memory is on a GPU that this process does not "
                           "see; give all workers of a machine the same CUDA_VISIBLE_DEVICES");
}

static dpb_status map(void *device, const struct dpb_memory_handle *handle, void **memory,
                      bool *direct)
{
    struct device *d = device;
    struct handle given;
    int owner = 0, peers = 1;
    memcpy(&given, handle->bytes, sizeof given);
    DPB_TRY(find_gpu(&given.gpu, &owner));
    if (owner != d->id)
        CUDA_TRY(cudaDeviceCanAccessPeer(&peers, d->id, owner));
    struct mapping *mapping = calloc(1, sizeof *mapping);
    if (!mapping)
        return cuda_no_memory();
    mapping->id = peers ? d->id : owner;
    dpb_status status = CUDA_CALL(cudaSetDevice(mapping->id));
    DPB_THEN(status, CUDA_CALL(cudaIpcOpenMemHandle(&mapping->memory, given.memory,
                                                    cudaIpcMemLazyEnablePeerAccess)));
    if (status != DPB_OK) {
        free(mapping);
        return status;
    }
    mapping->next = d->mappings;
    d->mappings = mapping;
    *memory = mapping->memory;
    *direct = peers != 0;
    return DPB_OK;
}

static void unmap(void *device, void *memory)
{
    struct device *d = device;
    for (struct mapping **at = &d->mappings; *at; at = &(*at)->next) {
        struct mapping *mapping = *at;
        if (mapping->memory != memory)
            continue;
        *at = mapping->next;
        cudaSetDevice(mapping->id);
        cudaIpcCloseMemHandle(memory);
        free(mapping);
        return;
    }
}

static dpb_status pin(void *device, uint64_t bytes, void **memory)
{
    const struct device *d = device;
    void *made = NULL;
    CUDA_TRY(cudaSetDevice(d->id));
    CUDA_TRY(cudaHostAlloc(&made, bytes, cudaHostAllocPortable));
    memset(made, 0, bytes);
    *memory = made;
    return DPB_OK;
}

static void unpin(void *device, void *memory)
{
    const struct device *d = device;
    cudaSetDevice(d->id);
    if (memory)
        cudaFreeHost(memory);
}

/* ---- work ---------------------------------------------------------------------------------- */

static dpb_status copy(struct dpb_queue *queue, void *dst, const void *src, uint64_t bytes)
{
    DPB_TRY(cuda_turn_to(queue));
    if (bytes > 0)
        CUDA_TRY(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream_of(queue)));
    return DPB_OK;
}

static dpb_status clear(struct dpb_queue *queue, void *dst, uint64_t bytes)
{
    DPB_TRY(cuda_turn_to(queue));
    if (bytes > 0)
        CUDA_TRY(cudaMemsetAsync(dst, 0, bytes, stream_of(queue)));
    return DPB_OK;
}

static dpb_status check_type(const char *what, dpb_dtype type)
{
    if (type == DPB_FP32 || type == DPB_BF16 || type == DPB_FP16)
        return DPB_OK;
    return cuda_host->fail(DPB_UNSUPPORTED,
                           "device cuda: %s of type %s; fp32, bf16 and fp16 are possible", what,
                           dpb_dtype_name(type));
}

/* After a launch on the queue. */
static dpb_status launched(const char *what)
{
    return cuda_check(NULL, NULL, what, cudaPeekAtLastError());
}

static dpb_status sum(struct dpb_queue *queue, dpb_dtype type, void *dst,
                      const void *const *sources, uint32_t k, uint64_t n)
{
    struct cuda_sources from = {.n = k};
    DPB_TRY(check_type("a sum", type));
    if (k > DPB_SUM_SOURCES)
        return cuda_host->fail(DPB_UNSUPPORTED, "device cuda: a sum of %u sources; %d are possible",
                               k, DPB_SUM_SOURCES);
    if (k == 0)
        return clear(queue, dst, n * dpb_dtype_size(type));
    if (k == 1)
        return dst == sources[0] ? DPB_OK : copy(queue, dst, sources[0], n * dpb_dtype_size(type));
    memcpy(from.at, sources, k * sizeof *sources);
    DPB_TRY(cuda_turn_to(queue));
    cuda_sum_arenas(stream_of(queue), type, &from, dst, n);
    return launched("a sum");
}

static dpb_status axpby(struct dpb_queue *queue, dpb_dtype type, double a, const void *x, double b,
                        void *y, uint64_t n)
{
    DPB_TRY(check_type("a scaled sum", type));
    DPB_TRY(cuda_turn_to(queue));
    cuda_axpby(stream_of(queue), type, (float)a, x, (float)b, y, n);
    return launched("a scaled sum");
}

static dpb_status cast(struct dpb_queue *queue, dpb_dtype to, void *dst, dpb_dtype from,
                       const void *src, uint64_t n)
{
    DPB_TRY(check_type("a cast", to));
    DPB_TRY(check_type("a cast", from));
    if (to == from)
        return copy(queue, dst, src, n * dpb_dtype_size(to));
    if (to != DPB_FP32 && from != DPB_FP32)
        return cuda_host->fail(DPB_UNSUPPORTED, "device cuda: a cast from %s to %s",
                               dpb_dtype_name(from), dpb_dtype_name(to));
    DPB_TRY(cuda_turn_to(queue));
    cuda_cast(stream_of(queue), to, dst, from, src, n);
    return launched("a cast");
}

static dpb_status update(struct dpb_queue *queue, const struct dpb_update *update)
{
    DPB_TRY(check_type("gradients of an update", update->gradient_type));
    DPB_TRY(cuda_turn_to(queue));
    cuda_update(stream_of(queue), update);
    return launched("the optimizer");
}

static dpb_status squares(struct dpb_queue *queue, const struct dpb_norms *norms,
                          struct dpb_squares *own)
{
    DPB_TRY(check_type("gradients of norms", norms->step.gradient_type));
    DPB_TRY(cuda_turn_to(queue));
    cuda_squares(stream_of(queue), norms, own);
    return launched("sums of squares");
}

static dpb_status factors(struct dpb_queue *queue, const struct dpb_norms *norms,
                          const struct dpb_squares *all, uint32_t n)
{
    DPB_TRY(cuda_turn_to(queue));
    cuda_factors(stream_of(queue), norms, all, n);
    return launched("factors by norms");
}

const struct dpb_queue_ops cuda_queues = {.runtime = "cuda",
                                          .allocate = allocate,
                                          .release = release,
                                          .describe = describe,
                                          .map = map,
                                          .unmap = unmap,
                                          .pin = pin,
                                          .unpin = unpin,
                                          .open = open_queue,
                                          .close = close_queue,
                                          .drain = drain_queue,
                                          .new_event = new_event,
                                          .record = record,
                                          .await = await_event,
                                          .stamp = stamp,
                                          .elapsed = elapsed,
                                          .copy = copy,
                                          .clear = clear,
                                          .sum = sum,
                                          .axpby = axpby,
                                          .cast = cast,
                                          .update = update,
                                          .squares = squares,
                                          .factors = factors,
                                          .coding_bytes = cuda_coding_bytes,
                                          .encode = cuda_encode,
                                          .decode = cuda_decode,
                                          .finish = cuda_finish};
