/* shard.c - see shard.h. */
#include "lib/shard.h"

#include "dpbench/codec.h"

const char *const shard_choices[] = {"none", "optimizer", NULL};

dpb_status shard_check(const struct dpb_host *host, const struct dpb_comm_args *args, int shard)
{
    if (shard == SHARD_NONE || !args->codec)
        return DPB_OK;
    return host->fail(
        DPB_UNSUPPORTED,
        "comm.shard = %s beside comm.codec = %s: with a codec each worker decodes and "
        "updates all of a bucket; leave one of them out",
        shard_choices[shard], args->codec->name);
}
