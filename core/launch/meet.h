/*
 * meet.h - how the parts of a job come together, come back and leave: party.h.
 */
#ifndef DPB_CORE_LAUNCH_MEET_H
#define DPB_CORE_LAUNCH_MEET_H

#include "launch/party.h"

/* NULL without a launcher (mpirun, srun, `environment`) around this process. *party is @owned:
 * dpb_party_leave.
 * Joining, and then agreeing, may take `timeout_ns` and DPB_PARTY_START_NS: DPB_TIMEOUT names the
 * missing ranks; the head prints it, or rank 1's part if the head is missing. */
#define DPB_PARTY_START_NS INT64_C(3000000000) /* for mpirun or srun to start all processes */
dpb_status dpb_party_join(int64_t timeout_ns, const struct dpb_environment *environment,
                          struct dpb_party **party);
/* Whether all parts are connected; without a party they are. */
bool dpb_party_is_whole(const struct dpb_party *party);
/* The head's: takes a new launcher in the place of each part that is not connected. Each of them is
 * of the machine of those parts that the one before was with, and of the same configuration.
 * DPB_TIMEOUT: none has come; other failures have left a message. */
dpb_status dpb_party_readmit(struct dpb_party *party, int64_t within_ns);
/* All ranks start again: connects those of other parts to the store anew. Collective. */
dpb_status dpb_party_reconnect(struct dpb_party *party);
/* From here on the rank may die, and this process with it, and its connection to PMIx stays
 * open. */
dpb_status dpb_party_keep(struct dpb_party *party);
/* The head makes the others end, with this code. Accepts NULL. */
void dpb_party_leave(struct dpb_party *party, int exit_code);

#endif
