/*
 * alloc.c - memory for arenas: zeroed, aligned to a cache line, large ones in huge pages.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"

#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Address sanitizer sees past the end of the heap's memory, not of a mapping. */
#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || HAS_FEATURE(address_sanitizer)
#define MAPPED_FROM_BYTES ((size_t)1 << 36)
#else
#define MAPPED_FROM_BYTES HUGE_PAGE_BYTES
#endif

static void *map_huge(size_t bytes)
{
    /* Over-allocated by one huge page, then trimmed, since mmap aligns to small pages only. */
    size_t rounded = (bytes + 4095) & ~(size_t)4095;
    size_t reserved = rounded + HUGE_PAGE_BYTES;
    char *base = mmap(NULL, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    size_t before = (HUGE_PAGE_BYTES - (uintptr_t)base % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    if (before > 0)
        munmap(base, before);
    munmap(base + before + rounded, HUGE_PAGE_BYTES - before);
    madvise(base + before, rounded, MADV_HUGEPAGE); /* a wish: small pages do as well */
    return base + before;
}

static uint64_t held, most_held; /* bytes */
static uint64_t limit = UINT64_MAX;
static char refusal[512];

static void hold(size_t bytes)
{
    const uint64_t now = __atomic_add_fetch(&held, bytes, __ATOMIC_RELAXED);
    uint64_t most = __atomic_load_n(&most_held, __ATOMIC_RELAXED);
    while (now > most && !__atomic_compare_exchange_n(&most_held, &most, now, true,
                                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

uint64_t dpb_alloc_held(void)
{
    return __atomic_load_n(&held, __ATOMIC_RELAXED);
}

uint64_t dpb_alloc_most(void)
{
    return __atomic_exchange_n(&most_held, dpb_alloc_held(), __ATOMIC_RELAXED);
}

void dpb_alloc_limit(uint64_t bytes, const char *why)
{
    snprintf(refusal, sizeof refusal, "%s", why ? why : "");
    limit = bytes;
}

void *dpb_alloc(size_t bytes)
{
    void *memory = NULL;
    if (bytes > limit || dpb_alloc_held() > limit - bytes) {
        dpb_fail(DPB_UNSUPPORTED, "%s", refusal);
        return NULL;
    }
    if (bytes <= SIZE_MAX - 2 * HUGE_PAGE_BYTES) {
        if (bytes >= MAPPED_FROM_BYTES) {
            memory = map_huge(bytes);
        } else {
            size_t line = DPB_CACHE_LINE;
            size_t rounded = bytes == 0 ? line : (bytes + line - 1) / line * line;
            memory = aligned_alloc(line, rounded);
            if (memory)
                memset(memory, 0, rounded);
        }
    }
    if (memory)
        hold(bytes);
    else
        dpb_fail(DPB_NO_MEMORY, "out of memory: %zu bytes are not to be had", bytes);
    return memory;
}

void dpb_release(void *memory, size_t bytes)
{
    if (!memory)
        return;
    __atomic_sub_fetch(&held, bytes, __ATOMIC_RELAXED);
    if (bytes >= MAPPED_FROM_BYTES)
        munmap(memory, (bytes + 4095) & ~(size_t)4095);
    else
        free(memory);
}
