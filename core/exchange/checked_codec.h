/*
 * checked_codec.h - the codec as a strategy gets it: the plugin's, with a `decode` that is checked
 * now and then.
 *
 * A codec may report 8 bytes and let peers that share memory read many more. So in all messages of
 * a proof, and in drawn messages of a training, core decodes twice: the message where it lies, for
 * the strategy; and a copy of exactly the reported bytes with other bytes behind them. Both sums
 * must be equal. The strategy's sum is the same with or without a check.
 *
 * Messages of a codec with `finish` are sums, whose size the hook `bytes` says: nothing is checked.
 * One checked codec a process.
 */
#ifndef DPB_CORE_EXCHANGE_CHECKED_CODEC_H
#define DPB_CORE_EXCHANGE_CHECKED_CODEC_H

#include "dpbench/codec.h"

/* The codec for a strategy's `open`: of the same name and options. NULL for NULL. @borrowed. */
const struct dpb_codec *dpb_checked_codec(const struct dpb_codec *codec);
/* Memory for messages of so many elements. Called before the first message. */
dpb_status dpb_checked_codec_allocate(uint64_t most_elements);
/* From now on: whether all messages are checked, or drawn ones. Any thread. */
void dpb_checked_codec_all(bool all);
void dpb_checked_codec_release(void);

#endif
