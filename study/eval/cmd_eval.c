/* cmd_eval.c - `dpbench eval -c FILE.ini checkpoint.load=FILE`: evaluates a saved model on the test
 * set of an experiment, or with --sample prints text that it writes; trains nothing. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/each.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "study/eval/write.h"

/* ---- what is evaluated --------------------------------------------------------------------- */

/* Whether the setting has a part in an evaluation. */
static bool matters(const char *section, const char *key)
{
    static const char *const sections[] = {"model", "data", "device"};
    static const char *const keys[] = {"run.name", "run.batch",       "run.precision",
                                       "run.seed", "run.memory",      "run.timeout_s",
                                       "run.nan",  "checkpoint.load", "eval.batches"};
    char path[256];
    snprintf(path, sizeof path, "%s.%s", section, key);
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (strcmp(section, sections[i]) == 0)
            return true;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(path, keys[i]) == 0)
            return true;
    return false;
}

/* An axis may change a setting that matters to the evaluation. */
static bool is_axis(const struct dpb_setting *setting)
{
    char section[64];
    const char *dot = strchr(setting->key, '.');
    const bool study =
        strcmp(setting->section, "sweep") == 0 || strcmp(setting->section, "tune") == 0;
    if (!study || !dot || (size_t)(dot - setting->key) >= sizeof section)
        return false;
    snprintf(section, sizeof section, "%.*s", (int)(dot - setting->key), setting->key);
    return matters(section, dot + 1);
}

/* Takes the file's training out of the settings. */
static dpb_status drop_training(struct dpb_config *config)
{
    for (size_t i = 0; i < config->n_settings;) {
        const struct dpb_setting *setting = &config->settings[i];
        if (matters(setting->section, setting->key)) {
            i++;
            continue;
        }
        if (is_axis(setting))
            return dpb_fail(DPB_USAGE,
                            "%s: `dpbench eval` evaluates one model, and %s.%s makes several: copy "
                            "the file without the axis",
                            setting->origin, setting->section, setting->key);
        if (strcmp(setting->origin, DPB_COMMAND_LINE) == 0)
            return dpb_fail(DPB_USAGE, "%s.%s has no meaning in an evaluation; leave it out",
                            setting->section, setting->key);
        dpb_config_remove(config, setting->section, setting->key);
    }
    return DPB_OK;
}

static dpb_status make_experiment(struct dpb_config *config, struct dpb_experiment **experiment)
{
    static const char *const settings[][3] = {
        {"run", "mode", "evaluate"},     {"run", "steps", "1"},
        {"run", "warmup_steps", "0"},    {"run", "steady_limit_s", "0"},
        {"comm", "name", "independent"}, {"eval", "final", "yes"}};
    DPB_TRY(drop_training(config));
    const struct dpb_setting *load = dpb_config_get(config, "checkpoint", "load");
    if (!load || load->value[0] == '\0')
        return dpb_fail(DPB_USAGE, "which model? give its file as checkpoint.load=FILE");
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++)
        DPB_TRY(dpb_config_set(config, settings[i][0], settings[i][1], settings[i][2],
                               DPB_EVALUATE_ORIGIN));
    return dpb_experiment_create(config, experiment);
}

/* ---- what came out ------------------------------------------------------------------------- */

static void print_evaluation(const json_t *document, FILE *out)
{
    if (strcmp(dpb_json_text(document, "status", "?"), "interrupted") == 0)
        fprintf(out, "interrupted: %s\n", dpb_json_text(document, "error", "no reason given"));
    dpb_each_item(json_object_get(document, "eval"), i, eval) {
        const double top5 = dpb_json_number(eval, "top5_accuracy");
        fprintf(out, "%s on %s, %s: accuracy %.2f %% (%.0f of %.0f labels)",
                dpb_json_text(document, "model.name", "?"),
                dpb_json_text(document, "config.data.name.value", "?"),
                dpb_json_text(document, "config.run.precision.value", "?"),
                100 * dpb_json_number(eval, "accuracy"), dpb_json_number(eval, "correct"),
                dpb_json_number(eval, "labels"));
        if (dpb_json_number(document, "config.eval.batches.value") > 0)
            fprintf(out, " of the test set's first %.0f samples", dpb_json_number(eval, "samples"));
        if (isfinite(top5))
            fprintf(out, ", %.2f %% in the top 5", 100 * top5);
        const double loss = dpb_json_number(eval, "loss");
        fprintf(out, ", loss %.4f", loss);
        if (isfinite(dpb_json_number(document, "model.tokens_per_sample")))
            fprintf(out, ", perplexity %.4g", exp(loss));
        fputc('\n', out);
    }
}

static int evaluate(struct dpb_experiment *experiment, const struct dpb_arguments *arguments)
{
    struct dpb_execution execution;
    dpb_execute(experiment, NULL, &(struct dpb_live_place){.label = "eval"}, &execution);
    return execution.result ? dpb_measured_deliver(execution.result, execution.exit_code, arguments,
                                                   "", "eval", print_evaluation)
                            : execution.exit_code;
}

/* ---- text ---------------------------------------------------------------------------------- */

static struct dpb_write_args writing = {.temperature = NAN}; /* n_bytes 0: an evaluation */

static int write_text(struct dpb_experiment *experiment, const struct dpb_arguments *arguments)
{
    (void)arguments;
    dpb_stdout_back();
    const dpb_status status = dpb_write_text(experiment, &writing, stdout);
    if (status == DPB_OK)
        putchar('\n');
    return dpb_status_exit_code(status);
}

/* Takes the words about text out of the command line. */
static dpb_status take_words(const struct dpb_command *self, int *argc, char **argv)
{
    int n = 1;
    for (int i = 1; i < *argc; i++) {
        const char *value = i + 1 < *argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--sample") == 0) {
            if (dpb_parse_int(value, &writing.n_bytes) != DPB_PARSED || writing.n_bytes < 1)
                return dpb_usage_error(self, "--sample needs a number of bytes from 1 up");
            i++;
        } else if (strcmp(argv[i], "--prompt") == 0) {
            if (value[0] == '\0')
                return dpb_usage_error(self, "--prompt needs a text of one byte or more");
            writing.prompt = value;
            i++;
        } else if (strcmp(argv[i], "--temperature") == 0) {
            if (dpb_parse_real(value, &writing.temperature) != DPB_PARSED ||
                writing.temperature < 0)
                return dpb_usage_error(self, "--temperature needs a number from 0 up");
            i++;
        } else {
            argv[n++] = argv[i];
        }
    }
    if (writing.n_bytes == 0 && (writing.prompt || isfinite(writing.temperature)))
        return dpb_usage_error(self, "--prompt and --temperature are for --sample N: give it, too");
    *argc = n;
    return DPB_OK;
}

static int command_eval(const struct dpb_command *self, int argc, char **argv)
{
    char **words = calloc((size_t)argc + 1, sizeof *words); /* argv stays as it was called */
    dpb_status status = dpb_allocated(words);
    if (status == DPB_OK)
        memcpy(words, argv, (size_t)argc * sizeof *words);
    DPB_THEN(status, take_words(self, &argc, words));
    const bool writes = status == DPB_OK && writing.n_bytes > 0;
    for (int i = 1; i < argc && writes && status == DPB_OK; i++)
        if (strcmp(words[i], "--json") == 0 || strcmp(words[i], "--output") == 0)
            status = dpb_usage_error(self, "--sample prints text, and no document: leave %s out",
                                     words[i]);
    if (!writing.prompt)
        writing.prompt = "\n";
    if (isnan(writing.temperature))
        writing.temperature = 1;
    const int code = status == DPB_OK ? dpb_command_alone(self, argc, words, make_experiment,
                                                          writes ? write_text : evaluate)
                                      : dpb_status_exit_code(status);
    free(words);
    return code;
}

DPB_PROGRAM("eval", command_eval)
