/*
 * agree.h - whether the job of several parts begins: party.h.
 */
#ifndef DPB_CORE_LAUNCH_AGREE_H
#define DPB_CORE_LAUNCH_AGREE_H

#include "launch/party.h"

/* `status` is this part's own: not DPB_OK if its configuration was refused, with dpb_first_error.
 * `config` is JSON of dpb_config_to_json. Collective. Returns DPB_OK in all parts or in none: the
 * head prints the refusal, or where parts differ, and sets *exit_code. */
dpb_status dpb_party_agree(struct dpb_party *party, dpb_status status, const char *config,
                           uint32_t n_workers, int *exit_code);
/* The head has printed why the job does not begin: tells the connected parts to print nothing. */
void dpb_party_refuse(struct dpb_party *party, dpb_status status);
/* The head's: the same with a part that comes in the place of another, and tells it. `status` is
 * the head's: not DPB_OK if it refuses that part, with a message. */
dpb_status dpb_party_agree_again(struct dpb_party *party, uint32_t part, dpb_status status);

#endif
