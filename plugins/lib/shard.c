/* shard.c - see shard.h. */
#include "lib/shard.h"

const char *const shard_choices[] = {"none", "optimizer", NULL};
