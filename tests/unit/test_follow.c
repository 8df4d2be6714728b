/*
 * test_follow.c - the bound of the steps check, on steps that are made here: no right step exceeds
 * it, whatever the contract rounds and the rule divides by. A wrong step is named by its number.
 */
#include <math.h>

#include "proof/follow.h"
#include "plan/contract.h"
#include "proof/follow_judge.h"
#include "tests/unit/trial.h"

enum { ELEMENTS = 16, STEPS = 2, ONE_BF16 = 1 << 16 /* roundings of fp32 */ };

static const struct dpb_tensor tensor = {.name = "weight", .n_elements = ELEMENTS, .decays = true};
static struct dpb_graph graph = {.n_tensors = 1, .tensors = &tensor, .n_elements = ELEMENTS};
static struct dpb_experiment experiment;
static struct dpb_journal journal;

/* A step by which all weights alike come to `to`. */
struct step {
    uint64_t number;
    double rate;
    float gradient, to;
};

/* Training of one worker from weights of 1, followed and judged. */
static dpb_status judge(const struct dpb_optimizer_settings *rule, uint32_t roundings,
                        const struct step steps[STEPS])
{
    static const struct dpb_comm_ops ops = {.open = NULL};
    float weights[ELEMENTS], gradients[ELEMENTS];
    struct dpb_exchange exchange = {.experiment = &experiment,
                                    .ops = &ops,
                                    .graph = &graph,
                                    .layout = {ELEMENTS, DPB_FP32, DPB_FP32, &tensor, 1},
                                    .plan.contract = dpb_contract_default(1, false),
                                    .arenas = {.weights = weights,
                                               .gradients = gradients,
                                               .n_buckets = 1,
                                               .bucket_elements = ELEMENTS}};
    static const struct dpb_range all = {0, ELEMENTS};
    exchange.plan.contract.roundings = roundings;
    experiment = (struct dpb_experiment){.n_workers = 1, .graph = &graph};
    experiment.settings.run.mode = DPB_MODE_TRAIN;
    experiment.settings.comm.name = "test";
    experiment.settings.optimizer = *rule;
    const struct dpb_optimizer_args optimizer = {.graph = &graph,
                                                 .settings = rule,
                                                 .weight_type = DPB_FP32,
                                                 .gradient_type = DPB_FP32,
                                                 .owned = &all,
                                                 .n_owned = 1};
    DPB_TRY(dpb_optimizer_create(&optimizer, &exchange.optimizer));
    exchange.gradients = gradients;
    dpb_status status = dpb_follow_open(&exchange, &journal);
    for (int step = 0; step <= STEPS && status == DPB_OK; step++) {
        for (int i = 0; i < ELEMENTS; i++)
            weights[i] = step == 0 ? 1.0F : steps[step - 1].to;
        if (step == STEPS)
            break;
        for (int i = 0; i < ELEMENTS; i++)
            gradients[i] = steps[step].gradient;
        dpb_world_begin_step(steps[step].number);
        exchange.step = (struct dpb_step){
            .step = (uint64_t)step, .learning_rate = steps[step].rate, .scale = 1.0};
        exchange.onlooker.begin(exchange.onlooker.owner);
        exchange.onlooker.gradients(exchange.onlooker.owner, 0, ELEMENTS);
        status = dpb_optimizers.update(exchange.optimizer, NULL, all, weights, gradients, 0,
                                       &exchange.step);
    }
    dpb_follow_end(&exchange);
    DPB_THEN(status, dpb_follow_judge(&exchange, &journal));
    dpb_follow_close(&exchange);
    dpb_optimizer_destroy(exchange.optimizer);
    return status;
}

/* ---- what ranks do ------------------------------------------------------------------------- */

static const struct dpb_optimizer_settings sgd = {.kind = DPB_SGD};

/* All ranks copy the new weights in bf16. A bound as wide as the steps accuses nobody, and shows
 * nothing. */
static dpb_status rounded_weights(struct trial_scratch *scratch)
{
    const float first = dpb_bf16_to_fp32(dpb_bf16_from_fp32(1.0F - 0.01F));
    const float second = dpb_bf16_to_fp32(dpb_bf16_from_fp32(first + 0.003F));
    (void)scratch;
    DPB_TRY(judge(&sgd, ONE_BF16, (struct step[]){{0, 1, 0.01F, first}, {1, 1, -0.003F, second}}));
    RANK_CHECK(journal.verdict_steps == DPB_VERDICT_SKIPPED);
    RANK_CHECK(strstr(journal.steps_reason, "near their roundings"));
    return DPB_OK;
}

/* The first gradient and the decay cancel, so the square of their sum is that of a rounding: its
 * root is far above epsilon, and 0 without the rounding. The second gradient is below epsilon. */
static dpb_status small_denominator(struct trial_scratch *scratch)
{
    static const double epsilon = 0x1p-14, rounding = 0x1p-11, second = 0x1p-18, beta2 = 0.5;
    const struct dpb_optimizer_settings adam = {
        .kind = DPB_ADAM, .beta2 = beta2, .epsilon = epsilon, .weight_decay = 1};
    const double square = beta2 * (1 - beta2) * rounding * rounding + (1 - beta2) * second * second;
    const double down = second / (sqrt(square / (1 - beta2 * beta2)) + epsilon);
    const struct step steps[] = {{0, (rounding + epsilon) / rounding, -1, 0},
                                 {1, 1, (float)second, (float)-down}};
    (void)scratch;
    DPB_TRY(judge(&adam, ONE_BF16 / 4, steps));
    RANK_CHECK(journal.verdict_steps == DPB_VERDICT_PASS);
    return DPB_OK;
}

/* Steps that are left out take no part in the count of exchanges. */
static dpb_status step_left_out(struct trial_scratch *scratch)
{
    const struct step steps[] = {{5, 1, 0.25F, 0.75F}, {7, 1, 0.25F, 0.25F}};
    RANK_FAILS(scratch, DPB_VERIFICATION, judge(&sgd, 0, steps));
    RANK_CHECK(journal.verdict_steps == DPB_VERDICT_FAIL);
    RANK_CHECK(strstr(scratch->text[0], "of 'weight' went from 0.75 to 0.25 in step 7 of training, "
                                        "not to 0.5 "));
    return DPB_OK;
}

static const struct trial_case cases[] = {{"rounded_weights", rounded_weights},
                                          {"small_denominator", small_denominator},
                                          {"step_left_out", step_left_out},
                                          {NULL, NULL}};

/* ---- tests --------------------------------------------------------------------------------- */

TEST(test_rounded_weights)
{
    trial_passes("rounded_weights", 1, 0);
}

TEST(test_small_denominator)
{
    trial_passes("small_denominator", 1, 0);
}

TEST(test_step_left_out)
{
    trial_passes("step_left_out", 1, 0);
}

TRIAL_MAIN(cases)
