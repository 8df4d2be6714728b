/*
 * links_size.h - the sizes of the messages of `dpbench links`: 1 KiB to 256 MiB, by 4.
 */
#ifndef DPB_CORE_BASE_LINKS_SIZE_H
#define DPB_CORE_BASE_LINKS_SIZE_H

#include <stdint.h>

enum { DPB_LINKS_SIZES = 10 };

static inline uint64_t dpb_links_size(uint32_t i)
{
    return UINT64_C(1024) << (2 * i < 18 ? 2 * i : 18);
}

#endif
