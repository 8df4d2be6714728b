/*
 * crooked - shm with a host that makes mistakes: a copy leaves out its last element, and a sum has
 * 1 too much in its first. `dpbench comm` has to find them in every operation.
 */
#define dpb_plugin_entry shm_entry
#include "../../plugins/comm/shm.c"
#undef dpb_plugin_entry
DPB_EXPORT const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given);

static struct dpb_host crooked_host;
static struct dpb_vec_ops crooked_vec;
static const struct dpb_vec_ops *straight_vec;
static struct dpb_plugin crooked;

static void crooked_copy(dpb_dtype type, void *dst, const void *src, uint64_t n)
{
    straight_vec->copy(type, dst, src, n - 1);
}

static void crooked_sum(dpb_dtype type, void *const *dst, uint32_t n_dst, const void *const *src,
                        uint32_t n_src, uint64_t n)
{
    straight_vec->sum(type, dst, n_dst, src, n_src, n);
    for (uint32_t i = 0; i < n_dst; i++)
        *(float *)dst[i] += 1;
}

const struct dpb_plugin *dpb_plugin_entry(const struct dpb_host *given)
{
    straight_vec = given->vec;
    crooked_vec = *given->vec;
    crooked_vec.copy = crooked_copy;
    crooked_vec.sum = crooked_sum;
    crooked_host = *given;
    crooked_host.vec = &crooked_vec;
    crooked = *shm_entry(&crooked_host);
    crooked.name = "crooked";
    return &crooked;
}
