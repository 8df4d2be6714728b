/*
 * party_parts.h - a part's waits for others: private to party.c and party_agree.c.
 */
#ifndef DPB_CORE_LAUNCH_PARTY_PARTS_H
#define DPB_CORE_LAUNCH_PARTY_PARTS_H

#include "launch/party.h"

enum { PARTY_TICK_MS = 50 }; /* between looks for the end of a wait */

/* LINK_VERDICT. */
struct verdict {
    int32_t exit_code; /* not 0: the job does not begin */
    struct dpb_seat place;
    uint8_t secret[DPB_SECRET_BYTES];
};

/* A waiting part calls it often. DPB_PEER if mpirun or srun has ended. */
dpb_status party_look(struct dpb_party *party);
/* A deadline has passed. A part that was itself stopped must not name another: the head, or rank
 * 1's part, has meanwhile named the missing one. mpirun continues processes that it ends
 * (SIGCONT). */
DPB_PRINTF(2, 3)
dpb_status party_missed(struct dpb_party *party, const char *format, ...);
/* The head's, after it has printed why the job does not begin: the linked parts print nothing. */
void party_refuse(struct dpb_party *party, dpb_status status);
/* The deadline of a wait that begins now. */
int64_t party_deadline(const struct dpb_party *party);

#endif
