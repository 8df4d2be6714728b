/* needs: cpu plain */
/*
 * test_cpu_profile.c - the account that the cpu device keeps of its ops: complete, within the wall
 * clock, begun anew when asked, and none where it was not asked for.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lib/session.h"
#include "lib/test.h"

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

TEST(test_account)
{
    enum { PASSES = 3 };
    const struct subject subject = {"tiny_bn", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    struct dpb_profile profile;
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    assert_int_equal(s.ops->profile(s.program, &profile), DPB_USAGE);
    s.ops->release(s.program);
    s.program = session_compile_with_account(&s);
    session_forward(&s);
    session_backward(&s);
    expect_ok(s.ops->profile(s.program, NULL));
    int64_t began_ns = now_ns();
    for (int i = 0; i < PASSES; i++) {
        session_forward(&s);
        session_backward(&s);
    }
    int64_t elapsed_ns = now_ns() - began_ns, sum_ns = 0;
    expect_ok(s.ops->profile(s.program, &profile));
    double flops = 0, want = 0;
    bool backward = false, norm = false;
    for (uint64_t i = 0; i < profile.n_rows; i++) {
        const struct dpb_profile_row *row = &profile.rows[i];
        assert_true(row->node < s.graph->n_nodes);
        assert_int_equal(row->calls, PASSES);
        assert_true(row->ns >= 0 && row->bytes >= 0 && row->what[0] && row->op[0]);
        assert_true(row->backward || !backward); /* forward's come first */
        backward = row->backward;
        norm = norm || (row->backward && strcmp(row->op, "batch-norm") == 0 && row->bytes > 0);
        sum_ns += row->ns;
        flops += row->flops;
    }
    assert_true(backward && norm);
    assert_true(sum_ns > 0 && sum_ns <= elapsed_ns);
    /* Forward, by weights and by data; the first convolution needs no gradient by its input. */
    for (uint32_t i = 0; i < s.graph->n_nodes; i++) {
        const struct dpb_node *node = &s.graph->nodes[i];
        int times = node->n_inputs > 0 && node->inputs[0] == 0 ? 2 : 3;
        want += 2.0 * (double)node->macs * subject.batch * times * PASSES;
    }
    assert_true(flops == want);
    assert_true(profile.limits.fp32_flops_per_s > 1e9);
    assert_true(profile.limits.read_bytes_per_s > 1e8 && profile.limits.copy_bytes_per_s > 1e8);
    session_close(&s);
}

int main(void)
{
    setenv("OMP_WAIT_POLICY", "passive", 1);
    return test_main(NULL, NULL);
}
