/*
 * machines.h - the machine of each rank, as text and as numbers.
 *
 * The text is that of comm.hosts: the number of ranks of each machine, in the order of the ranks,
 * or the machine of every rank.
 *
 *     4         one machine of 4 ranks           2x2       two machines of 2
 *     1+2x3     one of 1 rank, then two of 3     0,1,0,1   ranks 0 and 2 on one, 1 and 3 on another
 */
#ifndef DPB_CORE_LAUNCH_MACHINES_H
#define DPB_CORE_LAUNCH_MACHINES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Machines are numbered from 0 in the order of their lowest ranks. False, with the reason in `why`,
 * for a text that is malformed or has another number of ranks than n_ranks. "": one machine for
 * all. */
bool dpb_machines_parse(const char *text, uint32_t n_ranks, uint32_t *machines,
                        uint32_t *n_machines, char why[128]);
/* The shortest text; false: it does not fit. */
bool dpb_machines_format(const uint32_t *machines, uint32_t n_ranks, char *text, size_t capacity);

#endif
