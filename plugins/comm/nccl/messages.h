/*
 * messages.h - a codec (coded.h) with comm nccl: encoding, NCCL's collective and decoding of a
 * bucket, all enqueued in one queue. So buckets share the memory of messages.
 *
 *     of one round    encode; ncclAllGather of the messages; add them in the order of the ranks
 *     of two rounds   twice: encode; ncclAllReduce of the message in place; finish
 *
 * Afterwards the gradients of the bucket are the sum. NCCL chooses the order of an all-reduce.
 */
#ifndef DPB_PLUGINS_COMM_NCCL_MESSAGES_H
#define DPB_PLUGINS_COMM_NCCL_MESSAGES_H

#include "lib/device_strategy/device_coder.h"
#include "lib/nccl/communicator.h"

/* Events of a bucket: behind each encoding, and behind each collective. Exchanges that may be
 * unreported at a time: the caller gives each a bank. */
enum { MESSAGES_MARKS = 2 * DPB_CODEC_ROUNDS, MESSAGES_BANKS = 2 };

struct messages;

/* Bytes of device memory for messages, beside those of dpb_coded_memory. */
uint64_t messages_bytes(const struct dpb_comm_args *args, const struct dpb_layout *layout,
                        uint64_t bucket_elements);
/* With args.codec. `open`: the strategy's client. */
dpb_status messages_attach(struct dpb_strategy *strategy);
/* `bind`: allocates. The queue is @borrowed; the client frees all in dpb_strategy_close, with the
 * queue closed. */
dpb_status messages_bind(struct dpb_strategy *strategy, struct dpb_queue *queue);
/* Enqueues the bucket of the exchange under way; records the first 2 or 4 marks. Reports elements
 * and bytes. `what` has the bytes of the bucket. */
dpb_status messages_exchange(const struct dpb_strategy *strategy,
                             const struct dpb_communicator *communicator, uint32_t bank,
                             uint64_t bucket, struct dpb_event *const marks[],
                             const struct dpb_wait *what);
/* The device has finished a bucket; times are of its codec. Reports times and norms, which a step
 * later may do, and fails if a message was refused. */
dpb_status messages_report(const struct dpb_strategy *strategy, uint32_t bank, uint64_t bucket,
                           int64_t encode_ns, int64_t decode_ns);

#endif
