/*
 * mirror.c - core's memory and the device's copy of it. The GPU copies only from and to pinned
 * memory: core's own memory if it is a mapping of its own and the driver pins it, else a pinned
 * copy.
 */
#include "plan.h"

enum { PAGE_BYTES = 4096 };

/* The copy of `bytes` at `core`, of which the device keeps its own. */
dpb_status cuda_mirror_plan(struct program *p, void *core, uint64_t elements, struct mirror *mirror)
{
    *mirror = (struct mirror){.core = core, .bytes = (size_t)elements * sizeof(float)};
    DPB_TRY(cuda_tensor(p, mirror->bytes, &mirror->tensor));
    mirror->tensor->place.kept = true;
    return DPB_OK;
}

dpb_status cuda_mirror_none(struct program *p, void *core, struct mirror *mirror)
{
    *mirror = (struct mirror){.core = core};
    return cuda_foreign_tensor(p, core, &mirror->tensor);
}

/* Pages that core's memory may share with others' are left alone. */
static bool may_register(const struct mirror *mirror)
{
    return (uintptr_t)mirror->core % PAGE_BYTES == 0 && mirror->bytes >= 16 * PAGE_BYTES;
}

dpb_status cuda_mirror_bind(struct program *p, struct mirror *mirror)
{
    cudaStream_t stream = p->device->stream;
    if (!mirror->tensor || mirror->tensor->foreign)
        return DPB_OK;
    CUDA_TRY(cudaMemsetAsync(mirror->tensor->data, 0, mirror->tensor->place.bytes, stream));
    if (mirror->bytes == 0 || !mirror->core)
        return DPB_OK;
    if (may_register(mirror)) {
        size_t whole = (mirror->bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
        if (cudaHostRegister(mirror->core, whole, cudaHostRegisterPortable) == cudaSuccess) {
            mirror->pinned = mirror->core;
            return DPB_OK;
        }
        cudaGetLastError(); /* it is said that it failed, and there is another way */
        cuda_host->log(DPB_LOG_INFO,
                       "device cuda: an arena of %zu MB cannot be pinned; it is copied on the host",
                       mirror->bytes / 1000000);
    }
    return CUDA_CALL(cudaHostAlloc(&mirror->pinned, mirror->bytes, cudaHostAllocPortable));
}

void cuda_mirror_release(struct mirror *mirror)
{
    if (mirror->pinned && mirror->pinned == mirror->core)
        cudaHostUnregister(mirror->core);
    else if (mirror->pinned)
        cudaFreeHost(mirror->pinned);
    mirror->pinned = NULL;
}

dpb_status cuda_upload(const struct program *p, const struct mirror *mirror)
{
    if (mirror->bytes == 0)
        return DPB_OK;
    if (mirror->pinned != mirror->core)
        memcpy(mirror->pinned, mirror->core, mirror->bytes);
    return CUDA_CALL(cudaMemcpyAsync(mirror->tensor->data, mirror->pinned, mirror->bytes,
                                     cudaMemcpyHostToDevice, p->device->stream));
}

/* Elements [begin, end); cuda_downloaded, once the copy is done, brings them to core. */
dpb_status cuda_download(const struct mirror *mirror, uint64_t begin, uint64_t end,
                         cudaStream_t stream)
{
    if (end == begin || mirror->bytes == 0)
        return DPB_OK;
    return CUDA_CALL(cudaMemcpyAsync(
        (float *)mirror->pinned + begin, (const float *)mirror->tensor->data + begin,
        (size_t)(end - begin) * sizeof(float), cudaMemcpyDeviceToHost, stream));
}

void cuda_downloaded(const struct mirror *mirror, uint64_t begin, uint64_t end)
{
    if (mirror->pinned != mirror->core && end > begin && mirror->bytes > 0)
        memcpy((float *)mirror->core + begin, (const float *)mirror->pinned + begin,
               (size_t)(end - begin) * sizeof(float));
}
