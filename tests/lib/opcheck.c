/* opcheck.c - see opcheck.h. */
#include "lib/opcheck.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "conform/opcheck.h"
#include "lib/plugin.h"
#include "lib/test.h"
#include "lib/training.h"

static const struct dpb_device_ops *reference(void)
{
    return plugin_load(DPB_PLUGIN_DEVICE, "reference", &plugin_host)->ops;
}

void check_ops(const struct dpb_session *s)
{
    expect_ok(dpb_opcheck_ops(s));
}

void check_loss(const struct dpb_session *s)
{
    expect_ok(dpb_opcheck_loss(s, reference(), 0));
}

/* Only a program compiled with inspect shows its nodes, and takes memory for them. */
static void check_shared_memory(const struct dpb_session *s)
{
    struct dpb_compile_args args = {.graph = s->graph,
                                    .batch = s->batch.n,
                                    .precision = s->precision,
                                    .training = true,
                                    .format = &s->format};
    const struct dpb_device_memory memory = dpb_session_memory(s);
    double *shown =
        allocate(s->batch.n * dpb_shape_elements(s->graph->nodes[1].shape), sizeof(double));
    void *program = NULL;
    uint64_t shared = s->ops->memory_needed(NULL, &args);
    expect_ok(s->ops->compile(s->device, &args, &memory, &program));
    assert_int_equal(s->ops->inspect(program, 1, shown, NULL), DPB_UNSUPPORTED);
    dpb_first_error_clear(); /* else it would stand in for the reason of a later failure */
    s->ops->release(program);
    args.inspect = true;
    assert_true(tested_device()->own_memory || shared < s->ops->memory_needed(NULL, &args));
    free(shown);
}

/* In place of numbers in bf16, where the device says that it has none: no model compiles. */
static void check_no_bf16(void)
{
    const struct subject subject = {"tiny", NULL, 0, 4, DPB_UINT8, DPB_CHW, NULL};
    struct dpb_session s;
    session_open(&subject, DPB_PRECISION_FP32, true, &s);
    session_expect_refused(&s, DPB_PRECISION_BF16,
                           "in bf16 on this processor; use run.precision = fp32");
    session_close(&s);
}

void check_in(dpb_precision precision, const struct subject *subject, int what)
{
    struct dpb_session s;
    if (precision == DPB_PRECISION_BF16 && strcmp(tested_device()->name, "cpu") == 0 &&
        !cpu_has_bf16()) {
        check_no_bf16();
        return;
    }
    session_open(subject, precision, true, &s);
    session_forward(&s);
    session_backward(&s);
    if (what & OPS)
        check_ops(&s);
    if (what & LOSS)
        check_loss(&s);
    if (what & REPEAT) {
        expect_ok(dpb_opcheck_repeat(&s));
        check_shared_memory(&s);
    }
    if (what & EVALUATION)
        expect_ok(dpb_opcheck_evaluation(&s, reference()));
    session_close(&s);
}

void check_subject(const struct subject *subject, int what)
{
    check_in(DPB_PRECISION_FP32, subject, what);
    check_in(DPB_PRECISION_BF16, subject, what);
    if (!tested_device()->tensor_cores)
        return;
    check_in(DPB_PRECISION_TF32, subject, what & ~(REPEAT | EVALUATION));
    check_in(DPB_PRECISION_FP16, subject, what & ~(REPEAT | EVALUATION));
}
