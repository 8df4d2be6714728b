/*
 * ps_back.h - comm.codec_back: ps_cpu with a codec on the way back, too.
 *
 *     shard     sum of the workers' messages + its own residual -> an answer, a new residual
 *     worker    gradients <- the decoded answer; each worker updates all weights
 *
 * Answers are messages of the same codec. All workers decode the same answers, so all hold the same
 * bits. In the steps before the codec begins an answer is the sum itself.
 *
 * An answer lies in the shard's scratch, at a place for each bucket, where workers of its machine
 * read it. The shard sends the answer to workers of other machines, into the same place of their
 * scratch. One place is enough: the next answer of a bucket needs a message of each worker, and a
 * worker sends this message after its exchange is over.
 *
 * The residual of a worker's shard is in that worker's scratch. The residual of a server process is
 * in the scratch of its keeper, the first worker of the machine. So workers alone can prove and
 * save all residuals. Core refuses a server on a machine without workers.
 *
 * Books: residuals of shards and of workers are worth 1/W.
 *
 * Tang et al.: DoubleSqueeze: parallel stochastic gradient descent with double-pass
 * error-compensated compression. ICML 2019.
 */
#ifndef DPB_PLUGINS_COMM_PS_CPU_PS_BACK_H
#define DPB_PLUGINS_COMM_PS_CPU_PS_BACK_H

#include "comm/ps_cpu/ps.h"

/* Bytes in a scratch for answers, and for a residual with all elements of the model. */
uint64_t ps_back_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                       uint64_t bucket_elements);
/* Call it after ps->back_at is planned, before links_open. */
void ps_back_bind(struct ps *ps, const struct dpb_arenas *arenas);
void ps_back_load(struct ps *ps);
/* Refuses a checkpoint's residuals of other buckets or shards. */
dpb_status ps_back_begin(struct ps *ps);

/* A shard: the sum of a bucket, ps->sum, becomes its answer. */
void ps_back_encode(struct ps *ps, uint64_t bucket);
/* A worker: the answer is here; decodes it to the gradients. ps->back_status has the failure if the
 * answer is refused. */
void ps_back_decode(struct ps *ps, uint64_t bucket, uint64_t length);
/* Hooks of the next stage, whose work is coded_update. */
bool ps_back_update_due(void *ps, uint64_t bucket);
dpb_status ps_back_update_wait(void *ps, uint64_t bucket);

/* Hooks of the strategy: the hooks of coded.h, and the residual. */
dpb_status ps_back_books(void *comm, struct dpb_books *books);
dpb_status ps_back_state(void *comm, struct dpb_saved *saved);

#endif
