/* needs: cuda stand-in */
/*
 * test_cuda_profile.c - run.profile of the cuda device on a CUDA for tests: the account of a pass.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cuda_options.h"

/* A pass is the same, bit for bit, with an account and without one. */
static void expect_same_pass(struct dpb_session *s, void *counted)
{
    const size_t bytes = s->graph->n_elements * sizeof(float);
    void *plain = s->program, *gradients = allocate(s->graph->n_elements, sizeof(float));
    session_forward(s);
    session_backward(s);
    memcpy(gradients, s->gradients, bytes);
    const struct dpb_outcome outcome = s->outcome;
    s->program = counted;
    session_forward(s);
    session_backward(s);
    s->program = plain;
    assert_memory_equal(&outcome, &s->outcome, sizeof outcome);
    assert_memory_equal(gradients, s->gradients, bytes);
    free(gradients);
}

/* What a row says of a convolution forward: all that it reads and writes, and what it adds up. */
static void expect_convolution(const struct dpb_session *s, const struct dpb_profile_row *row)
{
    const struct dpb_node *node = &s->graph->nodes[row->node];
    struct dpb_shape in = s->graph->nodes[node->inputs[0]].shape;
    const size_t type = s->precision == DPB_PRECISION_FP32 ? 4 : 2;
    const uint64_t weights = s->graph->tensors[node->weight].n_elements / in.c;
    in.c = node->inputs[0] == 0 && type == 2 ? 8 : in.c; /* samples are padded */
    const uint64_t elements =
        s->batch.n * (dpb_shape_elements(in) + dpb_shape_elements(node->shape)) + weights * in.c;
    assert_true(row->bytes == (double)(elements * type * row->calls));
    assert_true(row->flops == 2.0 * (double)node->macs * s->batch.n * (double)row->calls);
}

static void check_rows(const struct dpb_session *s, const struct dpb_profile *profile,
                       uint64_t passes, int64_t elapsed_ns)
{
    double flops = 0, want = 0;
    int64_t sum_ns = 0;
    bool backward = false;
    unsigned n_convolutions = 0;
    for (uint64_t i = 0; i < profile->n_rows; i++) {
        const struct dpb_profile_row *row = &profile->rows[i];
        assert_true(row->node < s->graph->n_nodes && row->calls == passes);
        assert_true(row->ns >= 0 && row->bytes > 0 && row->what[0] && row->op[0]);
        assert_true(row->backward || !backward); /* forward's come first */
        backward = row->backward;
        sum_ns += row->ns;
        flops += row->flops;
        if (strcmp(row->op, "convolution") == 0 && strcmp(row->what, "forward") == 0) {
            expect_convolution(s, row);
            n_convolutions++;
        }
    }
    assert_true(backward && n_convolutions > 0);
    assert_true(sum_ns > 0 && sum_ns <= elapsed_ns);
    /* Forward, by weights and by data; the first convolution needs no gradient by its input. */
    for (uint32_t i = 0; i < s->graph->n_nodes; i++) {
        const struct dpb_node *node = &s->graph->nodes[i];
        int times = node->n_inputs > 0 && node->inputs[0] == 0 ? 2 : 3;
        want += 2.0 * (double)node->macs * s->batch.n * times * (double)passes;
    }
    assert_true(flops == want);
}

/* Where there is no memory to measure them in they are not known, which is no error. */
static void expect_no_limits(const struct dpb_session *s)
{
    struct dpb_profile profile;
    setenv("DPB_STAND_IN_MB", "1", 1);
    expect_ok(s->ops->profile(s->program, &profile));
    unsetenv("DPB_STAND_IN_MB");
    assert_true(profile.n_rows > 0 && profile.limits.copy_bytes_per_s == 0 &&
                profile.limits.read_bytes_per_s == 0 && profile.limits.fp32_flops_per_s == 0 &&
                profile.limits.bf16_flops_per_s == 0);
}

static void check_account(dpb_precision precision)
{
    enum { PASSES = 3 };
    const struct subject subject = {"tiny_bn", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    const bool fp32 = precision == DPB_PRECISION_FP32;
    struct dpb_session s;
    struct dpb_profile profile;
    session_open(&subject, precision, true, &s);
    assert_int_equal(s.ops->profile(s.program, &profile), DPB_USAGE);
    dpb_first_error_clear();
    void *counted = session_compile_with_account(&s);
    for (int i = 0; i < 3; i++)
        expect_same_pass(&s, counted);
    void *plain = s.program;
    s.program = counted;
    expect_ok(s.ops->profile(s.program, NULL));
    int64_t began_ns = dpb_now_ns();
    for (int i = 0; i < PASSES; i++) {
        session_forward(&s);
        session_backward(&s);
        s.pass.training = false; /* an evaluation has no part in it */
        session_forward(&s);
        s.pass.training = true;
    }
    expect_ok(s.ops->drain(s.program));
    int64_t elapsed_ns = dpb_now_ns() - began_ns;
    expect_ok(s.ops->profile(s.program, &profile));
    check_rows(&s, &profile, PASSES, elapsed_ns);
    assert_true((profile.limits.fp32_flops_per_s > 0) == fp32);
    assert_true((profile.limits.bf16_flops_per_s > 0) == !fp32);
    assert_true(profile.limits.copy_bytes_per_s > 0 && profile.limits.read_bytes_per_s > 0);
    assert_non_null(strstr(profile.how, "no CUDA graph"));
    expect_no_limits(&s);
    s.ops->release(counted);
    s.program = plain;
    session_close(&s);
}

TEST(test_account)
{
    check_account(DPB_PRECISION_FP32);
    check_account(DPB_PRECISION_BF16);
}

TEST_MAIN(setup, teardown)
