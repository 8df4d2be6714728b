/*
 * party_parts.h - how a part waits for others: private to party.c and party_agree.c.
 */
#ifndef DPB_CORE_LAUNCH_PARTY_PARTS_H
#define DPB_CORE_LAUNCH_PARTY_PARTS_H

#include "launch/party.h"

enum { PARTY_TICK_MS = 50 }; /* between looks at what may end the waiting */

/* LINK_VERDICT. */
struct verdict {
    int32_t exit_code; /* not 0: the job does not begin */
    struct dpb_seat place;
    uint8_t secret[DPB_SECRET_BYTES];
};

/* Of a part that waits, often: DPB_PEER if mpirun or srun has ended. */
dpb_status party_look(struct dpb_party *party);
/* A deadline has passed. A part that was stopped itself has no right to name another: that one, or
 * rank 1's part, has said meanwhile who was missing. mpirun continues what it ends (SIGCONT). */
DPB_PRINTF(2, 3)
dpb_status party_missed(struct dpb_party *party, const char *format, ...);
/* The head's, which has said why the job does not begin: the parts that are linked to it say
 * nothing. */
void party_refuse(struct dpb_party *party, dpb_status status);
/* When a wait that begins now is given up. */
int64_t party_deadline(const struct dpb_party *party);

#endif
