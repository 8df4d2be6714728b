/*
 * pattern.h - gradients whose sum over the ranks is known and exactly representable: small
 * integers, never 0, mixed from rank, element, repetition and a secret key. So a check finds a
 * value at the wrong element, from the wrong rank or from an earlier exchange. With a key each
 * element has a power of two of its own, the same on all ranks, that its integers are multiplied
 * by: sums stay exact, and no strategy knows the values.
 */
#ifndef DPB_CORE_PROOF_PATTERN_H
#define DPB_CORE_PROOF_PATTERN_H

#include "dpbench/types.h"

enum { DPB_PATTERN_LARGEST = 8 };

/* All integers up to here are exact in the type. */
uint32_t dpb_pattern_most(dpb_dtype type);
/* The largest integers of which `terms` add up exactly in the type, at most DPB_PATTERN_LARGEST; 0:
 * there are none. */
uint32_t dpb_pattern_largest(dpb_dtype type, uint64_t terms);

/* The pattern of one exchange. */
struct dpb_pattern_sum {
    uint64_t repetition;
    uint64_t key;     /* the same on all ranks; 0: integers alone, known to all */
    uint32_t largest; /* magnitudes are at most this; <= DPB_PATTERN_LARGEST */
    uint32_t n_ranks;
    double factor; /* expected: the sum over ranks [0, n_ranks) times this */
};

struct dpb_pattern_wrong {
    uint64_t element;
    double got, wanted;
};

/* array[i] = pattern of element begin + i, begin + i < end. */
void dpb_pattern_fill(dpb_dtype type, void *array, uint64_t begin, uint64_t end, uint32_t rank,
                      const struct dpb_pattern_sum *sum);
/* Elements [begin, end) of the sum over ranks [first_rank, first_rank + n_ranks). */
struct dpb_pattern_part {
    uint64_t begin, end;
    uint32_t first_rank, n_ranks;
};
/* The number of a part's elements, which lie at `memory`, that differ from the expected value;
 * *first: the first of them. */
uint64_t dpb_pattern_check_part(dpb_dtype type, const void *memory,
                                const struct dpb_pattern_part *part,
                                const struct dpb_pattern_sum *sum, struct dpb_pattern_wrong *first);
/* The same of a whole arena and all ranks: the number of the n elements that differ from the
 * expected value; *first: the first of them. */
uint64_t dpb_pattern_check(dpb_dtype type, const void *arena, uint64_t n,
                           const struct dpb_pattern_sum *sum, struct dpb_pattern_wrong *first);

#endif
