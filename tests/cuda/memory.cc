/*
 * memory.cc - the memory of the stand-in's GPUs, and the host's that is pinned.
 *
 * Every allocation is a memfd, so that another process can map it, by /proc; the system takes it
 * away with the last process that has it. It begins with a page that counts who has mapped it:
 * freed before that is none, the process is aborted, because CUDA promises nothing then.
 *
 * DPB_STAND_IN_MB: device memory there is (4096). DPB_STAND_IN_PEERS=0: GPUs are no peers of each
 * other.
 */
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "kernel_host.h"
#include "stand_in.h"

namespace
{
const size_t PAGE = 4096;

/* An allocation, of this process or mapped; its memfd has a page before it. */
struct block {
    size_t bytes;
    int fd, device;
};

std::map<const char *, size_t> pinned, device;
std::map<const char *, block> owned, mapped;
std::set<std::pair<int, int>> enabled; /* the first may reach the second's memory */
size_t device_bytes_used;

/* What a handle's bytes say. */
struct handle {
    pid_t pid;
    int fd, device;
    size_t bytes;
};

/* The range lies in one of the map's. */
bool inside(const std::map<const char *, size_t> &map, const void *at, size_t bytes)
{
    const char *begin = static_cast<const char *>(at);
    auto next = map.upper_bound(begin);
    if (next == map.begin())
        return false;
    --next;
    return begin + bytes <= next->first + next->second;
}

size_t device_bytes_all()
{
    return (size_t)setting("DPB_STAND_IN_MB", 4096) * 1000000;
}

char *map_block(int fd, size_t bytes)
{
    void *made = mmap(nullptr, PAGE + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return made == MAP_FAILED ? nullptr : static_cast<char *>(made) + PAGE;
}

void unmap_block(const char *memory, const block &one)
{
    device.erase(memory);
    close(one.fd);
    munmap(const_cast<char *>(memory) - PAGE, PAGE + one.bytes);
}

/* How many have mapped it. */
uint32_t *count_of(const char *memory)
{
    return reinterpret_cast<uint32_t *>(const_cast<char *>(memory) - PAGE);
}

bool may_reach(int one, int other)
{
    return one == other || setting("DPB_STAND_IN_PEERS", 1) != 0;
}

/* The range lies in an allocation of this process on that GPU. */
bool is_on(const void *at, size_t bytes, int gpu)
{
    const char *begin = static_cast<const char *>(at);
    auto next = owned.upper_bound(begin);
    if (next == owned.begin())
        return false;
    --next;
    return begin + bytes <= next->first + next->second.bytes && next->second.device == gpu;
}
} // namespace

bool stand_in_has(const void *at, size_t bytes)
{
    ONE_AT_A_TIME;
    return inside(device, at, bytes);
}

extern "C" {

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    *total = device_bytes_all();
    *free_bytes = *total - device_bytes_used;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    ONE_AT_A_TIME;
    if (cudaError_t code = forbidden())
        return code;
    if (device_bytes_used + bytes > device_bytes_all())
        return last_error = cudaErrorMemoryAllocation;
    const int fd = memfd_create("stand-in", MFD_CLOEXEC);
    char *made = nullptr;
    if (fd >= 0 && ftruncate(fd, (off_t)(PAGE + bytes)) == 0)
        made = map_block(fd, bytes);
    if (!made)
        return last_error = cudaErrorMemoryAllocation;
    memset(made, 0xff, bytes);
    device[made] = bytes;
    owned[made] = {bytes, fd, current_device};
    device_bytes_used += bytes;
    *memory = made;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    ONE_AT_A_TIME;
    if (!memory)
        return cudaSuccess;
    if (cudaError_t code = forbidden())
        return code;
    cudaStreamSynchronize(default_stream());
    const auto found = owned.find(static_cast<char *>(memory));
    if (found == owned.end())
        return cudaErrorInvalidValue;
    if (__atomic_load_n(count_of(found->first), __ATOMIC_ACQUIRE) != 0) {
        fprintf(stderr, "stand-in: memory is freed that another process has mapped\n");
        abort();
    }
    device_bytes_used -= found->second.bytes;
    unmap_block(found->first, found->second);
    owned.erase(found);
    return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *to, void *memory)
{
    ONE_AT_A_TIME;
    const auto found = owned.find(static_cast<char *>(memory));
    if (found == owned.end())
        return cudaErrorInvalidValue;
    const handle made = {getpid(), found->second.fd, found->second.device, found->second.bytes};
    memset(to, 0, sizeof *to);
    memcpy(to, &made, sizeof made);
    return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t from, unsigned flags)
{
    ONE_AT_A_TIME;
    handle given;
    char path[64];
    memcpy(&given, &from, sizeof given);
    if (flags != cudaIpcMemLazyEnablePeerAccess)
        return cudaErrorInvalidValue;
    if (given.pid == getpid())
        return cudaErrorDeviceUninitialized;
    if (!may_reach(current_device, given.device))
        return cudaErrorPeerAccessUnsupported;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)given.pid, given.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    char *made = fd < 0 ? nullptr : map_block(fd, given.bytes);
    if (!made)
        return cudaErrorMapBufferObjectFailed;
    __atomic_fetch_add(count_of(made), 1, __ATOMIC_ACQ_REL);
    device[made] = given.bytes;
    mapped[made] = {given.bytes, fd, current_device};
    *memory = made;
    return cudaSuccess;
}

cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    ONE_AT_A_TIME;
    const auto found = mapped.find(static_cast<char *>(memory));
    if (found == mapped.end() || found->second.device != current_device)
        return cudaErrorInvalidValue;
    __atomic_fetch_sub(count_of(found->first), 1, __ATOMIC_ACQ_REL);
    unmap_block(found->first, found->second);
    mapped.erase(found);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int one, int other)
{
    *can = one != other && may_reach(one, other);
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    ONE_AT_A_TIME;
    if (flags != 0 || peer == current_device)
        return last_error = cudaErrorInvalidValue;
    if (!may_reach(current_device, peer))
        return last_error = cudaErrorPeerAccessUnsupported;
    if (!enabled.insert({current_device, peer}).second)
        return last_error = cudaErrorPeerAccessAlreadyEnabled;
    return cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    ONE_AT_A_TIME;
    return enabled.erase({current_device, peer}) == 1 ? cudaSuccess
                                                      : last_error = cudaErrorPeerAccessNotEnabled;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned)
{
    ONE_AT_A_TIME;
    if (cudaError_t code = forbidden())
        return code;
    char *made = static_cast<char *>(aligned_alloc(PAGE, (bytes + PAGE - 1) / PAGE * PAGE));
    memset(made, 0xff, bytes);
    pinned[made] = bytes;
    *memory = made;
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    ONE_AT_A_TIME;
    pinned.erase(static_cast<char *>(memory));
    free(memory);
    return cudaSuccess;
}

/* Whole pages, and none of them twice. */
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned)
{
    ONE_AT_A_TIME;
    char *begin = static_cast<char *>(memory);
    for (const auto &one : pinned) {
        if (begin < one.first + one.second && one.first < begin + bytes)
            return last_error = cudaErrorHostMemoryAlreadyRegistered;
    }
    if ((uintptr_t)memory % PAGE != 0 || bytes % PAGE != 0)
        return last_error = cudaErrorInvalidValue;
    pinned[begin] = bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    ONE_AT_A_TIME;
    pinned.erase(static_cast<char *>(memory));
    return cudaSuccess;
}

/* cudaMemcpyDefault: what the addresses say. */
static bool is_right(const void *to, const void *from, size_t bytes, cudaMemcpyKind *kind)
{
    const bool from_device = inside(device, from, bytes), to_device = inside(device, to, bytes);
    if (*kind == cudaMemcpyDefault && to_device)
        *kind = from_device ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
    else if (*kind == cudaMemcpyDefault)
        *kind = from_device ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
    return from_device == (*kind == cudaMemcpyDeviceToHost || *kind == cudaMemcpyDeviceToDevice) &&
           to_device == (*kind == cudaMemcpyHostToDevice || *kind == cudaMemcpyDeviceToDevice);
}

/* From pageable memory to a device it returns when that has been read. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    ONE_AT_A_TIME;
    if (cudaError_t code = forbidden())
        return code;
    if (!is_right(to, from, bytes, &kind))
        return cudaErrorInvalidValue;
    cudaStreamSynchronize(default_stream());
    if (kind == cudaMemcpyHostToDevice && !inside(pinned, from, bytes)) {
        const char *begin = static_cast<const char *>(from);
        std::vector<char> copy(begin, begin + bytes);
        stand_in_enqueue(default_stream(), [to, copy] { memcpy(to, copy.data(), copy.size()); });
        return sticky;
    }
    memcpy(to, from, bytes);
    return sticky;
}

/* Bytes that copies have brought to devices, for tests that count them. */
uint64_t stand_in_uploaded;

/* Copies that had to wait for the host: those of a stream from or to pageable memory. */
uint64_t stand_in_pageable;

/* Pinned memory is read and written when the copy is done. Other memory is read at once; and who
 * wants it written waits until it is, which cannot be captured. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    ONE_AT_A_TIME;
    if (!is_right(to, from, bytes, &kind))
        return cudaErrorInvalidValue;
    stand_in_uploaded += kind == cudaMemcpyHostToDevice ? bytes : 0;
    stand_in_pageable += (kind == cudaMemcpyHostToDevice && !inside(pinned, from, bytes)) ||
                         (kind == cudaMemcpyDeviceToHost && !inside(pinned, to, bytes));
    if (kind == cudaMemcpyHostToDevice && !inside(pinned, from, bytes)) {
        const char *begin = static_cast<const char *>(from);
        std::vector<char> copy(begin, begin + bytes);
        stand_in_enqueue(stream, [to, copy] { memcpy(to, copy.data(), copy.size()); });
        return cudaSuccess;
    }
    stand_in_enqueue(stream, [to, from, bytes] { memmove(to, from, bytes); });
    if (kind == cudaMemcpyDeviceToHost && !inside(pinned, to, bytes))
        return cudaStreamSynchronize(stream);
    return cudaSuccess;
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_gpu, const void *from, int from_gpu, size_t bytes,
                                cudaStream_t stream)
{
    ONE_AT_A_TIME;
    if (!is_on(to, bytes, to_gpu) || !is_on(from, bytes, from_gpu))
        return last_error = cudaErrorInvalidValue;
    trace(enabled.count({from_gpu, to_gpu}) ? "copied directly" : "copied by the host");
    stand_in_enqueue(stream, [to, from, bytes] { memmove(to, from, bytes); });
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    ONE_AT_A_TIME;
    if (cudaError_t code = forbidden())
        return code;
    if (!inside(device, to, bytes) && !inside(pinned, to, bytes))
        return last_error = cudaErrorInvalidValue;
    if (inside(device, to, bytes))
        stand_in_enqueue(default_stream(), [to, value, bytes] { memset(to, value, bytes); });
    else
        memset(to, value, bytes);
    return sticky;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    ONE_AT_A_TIME;
    if (!inside(device, to, bytes))
        return cudaErrorInvalidValue;
    stand_in_enqueue(stream, [to, value, bytes] { memset(to, value, bytes); });
    return cudaSuccess;
}
}
