/*
 * test_schedule.c - the learning rate of a step: values worked out by hand, and what is refused.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "base/settings.h"
#include "lib/own.h"
#include "lib/test.h"
#include "optim/schedule.h"

/* `points`: STEP:RATE, by hand. */
static const struct schedule_case {
    const char *name, *settings;
    uint64_t global_batch, steps_per_epoch, total_steps;
    const char *points;
} cases[] = {
    {"constant", "schedule=constant; learning_rate=0.1", 64, 10, 0, "0:0.1 7:0.1 1000000:0.1"},
    {"step", "schedule=step; learning_rate=2; decay_factor=0.1; decay_at=2, 4.5,6", 64, 10, 0,
     "0:2 19:2 20:0.2 44:0.2 45:0.02 59:0.02 60:0.002"},
    {"cosine", "schedule=cosine; learning_rate=0.2", 64, 10, 100,
     "0:0.2 25:0.17071067811865476 50:0.1 75:0.029289321881345254 100:0 150:0"},
    {"step with a floor",
     "schedule=step; learning_rate=2; decay_factor=0.1; decay_at=2,4,6; end_rate=0.05", 64, 10, 0,
     "0:2 19:2 20:0.2 39:0.2 40:0.05 60:0.05"},
    {"cosine with a floor", "schedule=cosine; learning_rate=0.3; end_rate=0.1", 64, 10, 100,
     "0:0.3 25:0.27071067811865476 50:0.2 75:0.12928932188134525 100:0.1 150:0.1"},
    {"piecewise, up and down",
     "schedule=piecewise; learning_rate=0.3; decay_at=1, 2.5,4; rates=0.5, 0.01,0", 64, 10, 0,
     "0:0.3 9:0.3 10:0.5 24:0.5 25:0.01 39:0.01 40:0 1000:0"},
    {"linear scaling is of all rates of piecewise",
     "schedule=piecewise; learning_rate=0.1; decay_at=2,4; rates=0.2,0.01; linear_scaling=yes; "
     "linear_base=32; warmup_epochs=1",
     64, 10, 0, "0:0.11 9:0.2 19:0.2 20:0.4 40:0.02"},
    {"polynomial", "schedule=polynomial; learning_rate=0.9; decay_power=3; end_rate=0.1", 64, 10,
     100, "0:0.9 25:0.4375 50:0.2 75:0.1125 100:0.1 150:0.1"},
    {"a polynomial of power 1 is a line", "schedule=polynomial; learning_rate=0.8; decay_power=1",
     64, 10, 100, "0:0.8 25:0.6 99:0.008 100:0 101:0"},
    {"the polynomial begins where warm-up ends; its end is not scaled",
     "schedule=polynomial; learning_rate=0.1; decay_power=2; end_rate=0.04; linear_scaling=yes; "
     "linear_base=32; warmup_epochs=1",
     64, 10, 110, "0:0.11 9:0.2 10:0.2 60:0.08 110:0.04 111:0.04"},
    {"linear scaling", "schedule=constant; learning_rate=0.1; linear_scaling=yes; linear_base=256",
     1024, 10, 0, "0:0.4 99:0.4"},
    {"gradual warm-up over 5 epochs",
     "schedule=constant; learning_rate=0.1; linear_scaling=yes; linear_base=256; warmup_epochs=5",
     1024, 10, 0, "0:0.106 1:0.112 24:0.25 49:0.4 50:0.4 51:0.4"},
    {"a rate that is not scaled rises from 0",
     "schedule=constant; learning_rate=0.5; linear_base=256; warmup_epochs=1", 1024, 10, 0,
     "0:0.05 4:0.25 9:0.5 10:0.5"},
    {"warm-up of two and a half steps takes three",
     "schedule=constant; learning_rate=1; linear_scaling=yes; linear_base=16; warmup_epochs=0.25",
     64, 10, 0, "0:2 1:3 2:4 3:4"},
    {"the cosine begins where warm-up ends",
     "schedule=cosine; learning_rate=0.1; linear_scaling=yes; linear_base=32; warmup_epochs=1", 64,
     10, 110, "0:0.11 9:0.2 10:0.2 60:0.1 110:0"},
    {"steps are counted from the first, warm-up or not",
     "schedule=step; learning_rate=1; decay_factor=0.5; decay_at=2; linear_scaling=yes; "
     "linear_base=64; warmup_epochs=1",
     64, 10, 0, "0:1 19:1 20:0.5"},
    {"hundredths of an epoch are whole steps",
     "schedule=step; learning_rate=0.7; decay_factor=0.5; decay_at=0.14; warmup_epochs=0.07", 64,
     100, 0, "0:0.1 6:0.7 7:0.7 13:0.7 14:0.35"},
};

/* Options of [optimizer] as a user writes them. */
static struct dpb_optimizer_settings settings_of(const char *text)
{
    static struct dpb_settings settings;
    struct dpb_config *config = own_config(dpb_config_create());
    char words[256], setting[128], *rest = strcpy(words, text);
    for (char *word = strsep(&rest, ";"); word; word = strsep(&rest, ";")) {
        snprintf(setting, sizeof setting, "optimizer.%s", word + strspn(word, " "));
        assert_int_equal(dpb_config_assign(config, setting, "test"), DPB_OK);
    }
    const struct dpb_settings_section *section = dpb_settings_sections;
    while (strcmp(section->name, "optimizer") != 0)
        section++;
    const struct dpb_option_table table = {section->name, NULL, section->rows, &settings};
    assert_int_equal(dpb_options_parse(&table, 1, config), DPB_OK);
    return settings.optimizer;
}

TEST(test_values)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct schedule_case *c = &cases[i];
        const struct dpb_optimizer_settings settings = settings_of(c->settings);
        struct dpb_schedule schedule;
        assert_int_equal(dpb_schedule_make(&settings, c->global_batch, c->steps_per_epoch,
                                           c->total_steps, &schedule),
                         DPB_OK);
        for (const char *point = c->points; point; point = strchr(point + 1, ' ')) {
            uint64_t step;
            double wanted;
            assert_int_equal(sscanf(point, "%" SCNu64 ":%lf", &step, &wanted), 2);
            const double rate = dpb_schedule_rate(&schedule, step);
            if (!(fabs(rate - wanted) <= 1e-12))
                fail_msg("%s: step %llu has rate %.17g, not %.17g", c->name,
                         (unsigned long long)step, rate, wanted);
        }
    }
}

/* ---- refusals ------------------------------------------------------------------------------ */

TEST(test_refusals)
{
    static const struct {
        int schedule;
        const char *decay_at, *message, *rates;
    } refused[] = {
        {DPB_STEPWISE, "30,x", "'30,x' is not a rising list", NULL},
        {DPB_STEPWISE, "30,,60", "not a rising list", NULL},
        {DPB_STEPWISE, "60,30", "not a rising list", NULL},
        {DPB_STEPWISE, "30,30", "not a rising list", NULL},
        {DPB_STEPWISE, "0", "not a rising list", NULL},
        {DPB_STEPWISE, "-5", "not a rising list", NULL},
        {DPB_STEPWISE, "nan", "not a rising list", NULL},
        {DPB_STEPWISE, "1,inf", "not a rising list", NULL},
        {DPB_STEPWISE, "30 60", "not a rising list", NULL},
        {DPB_STEPWISE, "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17", "more than 16", NULL},
        {DPB_PIECEWISE, "30,20", "'30,20' is not a rising list of epochs", "1,1"},
        {DPB_PIECEWISE, "30,60", "rates: '1,-1' is not a list of rates", "1,-1"},
        {DPB_PIECEWISE, "30,60", "rates: 'nan,1' is not a list of rates", "nan,1"},
        {DPB_PIECEWISE, "30,60", "rates: '1,2,' is not a list of rates", "1,2,"},
        {DPB_PIECEWISE, "30,60", "has 1 rates, and optimizer.decay_at 2 epochs", "1"},
        {DPB_PIECEWISE, "30,60", "has 0 rates, and optimizer.decay_at 2 epochs", ""},
        {DPB_COSINE, "", "schedule = cosine needs a run whose length is known", NULL},
        {DPB_POLYNOMIAL, "", "schedule = polynomial needs a run whose length is known", NULL},
    };
    dpb_status status;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        struct dpb_schedule schedule;
        const struct dpb_optimizer_settings settings = {.schedule = refused[i].schedule,
                                                        .learning_rate = 1,
                                                        .decay_factor = 0.1,
                                                        .decay_at = refused[i].decay_at,
                                                        .rates = refused[i].rates};
        assert_int_equal(dpb_schedule_make(&settings, 64, 10, 0, &schedule), DPB_USAGE);
        if (!strstr(dpb_first_error(&status), refused[i].message))
            fail_msg("'%s': the message is '%s'", refused[i].decay_at, dpb_first_error(&status));
        dpb_first_error_clear();
    }
}

/* The rate falls; linear scaling raises where it falls from. */
TEST(test_end_rate)
{
    struct dpb_optimizer_settings settings = {
        .schedule = DPB_POLYNOMIAL, .learning_rate = 1, .end_rate = 1.5, .linear_base = 32};
    static const int schedules[] = {DPB_STEPWISE, DPB_COSINE, DPB_POLYNOMIAL};
    struct dpb_schedule schedule;
    dpb_status status;
    for (size_t i = 0; i < sizeof schedules / sizeof schedules[0]; i++) {
        settings.schedule = schedules[i];
        assert_int_equal(dpb_schedule_make(&settings, 64, 10, 100, &schedule), DPB_USAGE);
        assert_non_null(strstr(dpb_first_error(&status),
                               "optimizer.end_rate = 1.5 is above the rate it decays from, 1;"));
        dpb_first_error_clear();
    }
    settings.linear_scaling = true;
    assert_int_equal(dpb_schedule_make(&settings, 64, 10, 100, &schedule), DPB_OK);
}

TEST_MAIN(NULL, NULL)
