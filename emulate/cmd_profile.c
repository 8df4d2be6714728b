/* cmd_profile.c - `dpbench profile from ...` and `dpbench profile show FILE`: reads the
 * arguments. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/output.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "emulate/makers.h"
#include "lib/accelerator/accelerator.h"

enum option {
    RATE,
    FLOPS,
    BANDWIDTH,
    SHARE,
    MODEL,
    TENSORS,
    TORCH,
    CHAKRA,
    BATCH,
    ACCELERATOR,
    PRECISION,
    KIND,
    SOURCE,
    SPREAD,
    OUTPUT,
    OPTIONS
};
static const char *const names[OPTIONS] = {"--rate",   "--flops",       "--bandwidth", "--share",
                                           "--model",  "--tensors",     "--torch",     "--chakra",
                                           "--batch",  "--accelerator", "--precision", "--kind",
                                           "--source", "--spread",      "--output"};
#define IS(option) (1u << (option))

/* What a profile may be made from: the options that it needs and those that it takes beside. */
enum maker { RESULT, OF_RATE, ROOFLINE, OF_TORCH, OF_CHAKRA };
static const struct {
    const char *from;
    uint32_t needs, takes;
} makers[] = {
    [RESULT] = {"a result", 0, IS(ACCELERATOR) | IS(SOURCE) | IS(OUTPUT)},
    [OF_RATE] = {"--rate", IS(RATE) | IS(MODEL) | IS(BATCH) | IS(ACCELERATOR),
                 IS(FLOPS) | IS(BANDWIDTH) | IS(TENSORS) | IS(PRECISION) | IS(KIND) | IS(SOURCE) |
                     IS(SPREAD) | IS(OUTPUT)},
    [ROOFLINE] = {"--flops",
                  IS(FLOPS) | IS(BANDWIDTH) | IS(SHARE) | IS(MODEL) | IS(BATCH) | IS(ACCELERATOR),
                  IS(TENSORS) | IS(PRECISION) | IS(SOURCE) | IS(SPREAD) | IS(OUTPUT)},
    [OF_TORCH] = {"--torch", IS(TORCH) | IS(MODEL) | IS(BATCH) | IS(ACCELERATOR),
                  IS(PRECISION) | IS(SOURCE) | IS(OUTPUT)},
    [OF_CHAKRA] = {"--chakra", IS(CHAKRA) | IS(MODEL) | IS(BATCH) | IS(ACCELERATOR),
                   IS(PRECISION) | IS(KIND) | IS(SOURCE) | IS(SPREAD) | IS(OUTPUT)},
};

struct request {
    const struct dpb_command *self;
    const char *values[OPTIONS]; /* NULL: not given */
    uint32_t given;              /* bits of those that are */
    const char *path;            /* RESULT.json; NULL: none */
    struct dpb_config *settings; /* @owned; model.* and data.* */
    enum maker maker;
};

/* ---- arguments ----------------------------------------------------------------------------- */

static dpb_status take_setting(struct request *request, const char *word)
{
    DPB_TRY(dpb_config_assign(request->settings, word, DPB_COMMAND_LINE));
    const struct dpb_setting *last =
        &request->settings->settings[request->settings->n_settings - 1];
    if (strcmp(last->section, "model") != 0 && strcmp(last->section, "data") != 0)
        return dpb_usage_error(request->self,
                               "'%s': a profile takes settings model.KEY and "
                               "data.KEY, which make the network",
                               word);
    return DPB_OK;
}

static dpb_status take_option(struct request *request, const char *word, const char *value)
{
    int option = 0;
    while (option < OPTIONS && strcmp(names[option], word) != 0)
        option++;
    if (option == OPTIONS)
        return dpb_unknown_option(request->self, word);
    if (request->values[option])
        return dpb_usage_error(request->self, "%s is given twice", word);
    if (!value || value[0] == '\0')
        return dpb_usage_error(request->self, "%s needs a value", word);
    request->values[option] = value;
    request->given |= IS(option);
    return DPB_OK;
}

static dpb_status choose_maker(struct request *request)
{
    const uint32_t given = request->given;
    request->maker = request->path        ? RESULT
                     : given & IS(TORCH)  ? OF_TORCH
                     : given & IS(CHAKRA) ? OF_CHAKRA
                     : given & IS(RATE)   ? OF_RATE
                                          : ROOFLINE;
    if (!request->path && !(given & (IS(TORCH) | IS(CHAKRA) | IS(RATE) | IS(FLOPS))))
        return dpb_usage_error(request->self, "from what? give a RESULT.json, --rate, --flops, "
                                              "--torch or --chakra");
    const uint32_t needs = makers[request->maker].needs;
    for (int option = 0; option < OPTIONS; option++) {
        if ((needs & ~given) & IS(option))
            return dpb_usage_error(request->self, "%s needs %s, too", makers[request->maker].from,
                                   names[option]);
        if (given & ~(needs | makers[request->maker].takes) & IS(option))
            return dpb_usage_error(request->self, "%s cannot be used with %s", names[option],
                                   makers[request->maker].from);
    }
    const bool network =
        (request->maker == OF_RATE || request->maker == ROOFLINE) && !request->values[TENSORS];
    if (request->settings->n_settings > 0 && !network)
        return dpb_usage_error(request->self, "settings of the model cannot be used with %s",
                               request->values[TENSORS] ? "--tensors"
                                                        : makers[request->maker].from);
    if (((given & IS(FLOPS)) == 0) != ((given & IS(BANDWIDTH)) == 0))
        return dpb_usage_error(request->self, "--flops and --bandwidth go together");
    return DPB_OK;
}

static dpb_status parse(struct request *request, int argc, char **argv)
{
    for (int i = 2; i < argc; i++) {
        if (argv[i][0] == '-') {
            DPB_TRY(take_option(request, argv[i], i + 1 < argc ? argv[i + 1] : NULL));
            i++;
        } else if (strchr(argv[i], '=')) {
            DPB_TRY(take_setting(request, argv[i]));
        } else if (request->path) {
            return dpb_usage_error(request->self, "one result at a time: '%s' is a second",
                                   argv[i]);
        } else {
            request->path = argv[i];
        }
    }
    return choose_maker(request);
}

/* A number above 0 (--spread: from 0) and up to `most`, perhaps with `unit` behind it. Not given:
 * stays. */
static dpb_status take_number(const struct request *request, enum option option, const char *unit,
                              double most, double *value)
{
    char digits[64];
    const char *text = request->values[option];
    if (!text)
        return DPB_OK;
    size_t length = strlen(text);
    const size_t tail = strlen(unit);
    if (length > tail && strcmp(text + length - tail, unit) == 0)
        length -= tail;
    snprintf(digits, sizeof digits, "%.*s", (int)(length < sizeof digits ? length : 0), text);
    if (dpb_parse_real(digits, value) != DPB_PARSED || *value < 0 || *value > most ||
        (*value == 0 && option != SPREAD))
        return dpb_usage_error(request->self, "%s: '%s' is no number %s 0 and up to %g",
                               names[option], text, option == SPREAD ? "from" : "above", most);
    return DPB_OK;
}

/* ---- from ---------------------------------------------------------------------------------- */

static dpb_status choose_kind(const struct request *request, struct dpb_made *made)
{
    const char *kind = request->values[KIND];
    const bool trace = request->maker == OF_CHAKRA;
    made->kind = request->maker == OF_TORCH ? "measured" : kind ? kind : "estimated";
    if (kind && strcmp(kind, "estimated") != 0 &&
        strcmp(kind, trace ? "measured" : "published") != 0)
        return dpb_usage_error(request->self, "--kind: '%s' is none of estimated, %s", kind,
                               trace ? "measured" : "published");
    if (kind && strcmp(kind, "estimated") != 0 && !request->values[SOURCE])
        return dpb_usage_error(request->self, "--kind %s needs --source: where the times are from",
                               kind);
    return DPB_OK;
}

/* The values that all makers but a result have alike. */
static dpb_status begin(const struct request *request, struct dpb_made *made)
{
    double batch = 0;
    const char *source = request->values[SOURCE];
    const char *trace = request->values[TORCH] ? request->values[TORCH] : request->values[CHAKRA];
    made->accelerator = request->values[ACCELERATOR];
    made->precision = request->values[PRECISION] ? request->values[PRECISION] : "fp32";
    made->model = request->values[MODEL];
    made->spread = 0.01;
    if (source && strlen(source) >= sizeof made->source)
        return dpb_usage_error(request->self, "--source: up to %zu bytes", sizeof made->source - 1);
    if (source)
        snprintf(made->source, sizeof made->source, "%s", source);
    if (request->maker == RESULT)
        return DPB_OK;
    if (!source && trace)
        snprintf(made->source, sizeof made->source, "%.200s", trace);
    if (dpb_precision_bytes(made->precision) == 0)
        return dpb_usage_error(request->self,
                               "--precision: '%s' is none of fp64, fp32, tf32, bf16, fp16",
                               made->precision);
    DPB_TRY(take_number(request, BATCH, "", 1 << 30, &batch));
    DPB_TRY(take_number(request, SPREAD, "", 1, &made->spread));
    made->batch = (uint32_t)batch;
    if (made->batch != batch)
        return dpb_usage_error(request->self, "--batch: '%s' is no whole number",
                               request->values[BATCH]);
    return choose_kind(request, made);
}

static dpb_status make_of_work(const struct request *request, struct dpb_made *made)
{
    struct dpb_work work = {.tensors = request->values[TENSORS], .share = 1};
    DPB_TRY(take_number(request, RATE, "/s", 1e12, &work.rate));
    DPB_TRY(take_number(request, FLOPS, "", 1e18, &work.flops));
    DPB_TRY(take_number(request, BANDWIDTH, "", 1e18, &work.bandwidth));
    DPB_TRY(take_number(request, SHARE, "", 1, &work.share));
    if (!work.tensors) {
        DPB_TRY(dpb_config_set(request->settings, "model", "name", made->model, "--model"));
        work.settings = request->settings;
    }
    return dpb_made_of_work(&work, made);
}

static dpb_status make(const struct request *request, struct dpb_made *made)
{
    DPB_TRY(begin(request, made));
    switch (request->maker) {
    case RESULT:
        return dpb_made_of_result(request->path, made);
    case OF_TORCH:
        made->spread = 0; /* of one step */
        return dpb_made_of_torch(request->values[TORCH], made);
    case OF_CHAKRA:
        return dpb_made_of_chakra(request->values[CHAKRA], made);
    default:
        return make_of_work(request, made);
    }
}

/* To `path`; NULL: stdout. */
static dpb_status deliver(const char *path, const json_t *document)
{
    char *text = NULL;
    size_t length = 0;
    if (!path) {
        dpb_profile_write(document, stdout);
        return DPB_OK;
    }
    DPB_TRY(dpb_output_check("--output", path));
    FILE *out = open_memstream(&text, &length);
    DPB_TRY(dpb_allocated(out));
    dpb_profile_write(document, out);
    dpb_status status = dpb_allocated(fclose(out) == 0);
    DPB_THEN(status, dpb_output_write(path, text, length));
    free(text);
    return status;
}

static dpb_status from(struct request *request, int argc, char **argv)
{
    struct dpb_made made = {0};
    json_t *document = NULL;
    dpb_status status = parse(request, argc, argv);
    DPB_THEN(status, make(request, &made));
    DPB_THEN(status, dpb_made_document(&made, &document));
    DPB_THEN(status, deliver(request->values[OUTPUT], document));
    if (status == DPB_OK) {
        const double step_ns = made.forward_ns + made.backward_ns;
        const bool assumed =
            (makers[request->maker].takes & IS(SPREAD)) && !request->values[SPREAD];
        dpb_log(DPB_LOG_INFO, "%s, %s (%s): %.3f ms a step, %.5g samples/s, %zu tensors; %s%s",
                made.accelerator, made.model, made.kind, step_ns / 1e6, made.batch / step_ns * 1e9,
                made.n_tensors, made.assumed, assumed ? "; steps spread by 1 %" : "");
    }
    json_decref(document);
    dpb_made_release(&made);
    return status;
}

/* ---- show ---------------------------------------------------------------------------------- */

static dpb_status show(const struct dpb_command *self, int argc, char **argv)
{
    struct dpb_accelerator profile;
    char why[DPB_ACCELERATOR_WHY];
    const char *file = NULL;
    bool json = false;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            json = true;
        else if (argv[i][0] == '-')
            return dpb_unknown_option(self, argv[i]);
        else if (file)
            return dpb_usage_error(self, "one profile at a time: '%s' is a second", argv[i]);
        else
            file = argv[i];
    }
    if (!file)
        return dpb_usage_error(self, "which profile? give its file, or the name of one of "
                                     "dpbench's own");
    if (!dpb_accelerator_read(file, &profile, why))
        return dpb_fail(DPB_USAGE, "%s", why);
    if (json)
        dpb_profile_write(profile.document, stdout);
    else
        dpb_profile_show(profile.document, stdout);
    dpb_accelerator_release(&profile);
    return DPB_OK;
}

static int command_profile(const struct dpb_command *self, int argc, char **argv)
{
    struct request request = {.self = self, .settings = dpb_config_create()};
    dpb_status status = dpb_allocated(request.settings);
    const char *word = argc > 1 ? argv[1] : "";
    if (status == DPB_OK && strcmp(word, "from") == 0)
        status = from(&request, argc, argv);
    else if (status == DPB_OK && strcmp(word, "show") == 0)
        status = show(self, argc, argv);
    else if (status == DPB_OK)
        status = dpb_usage_error(self, "what to do? `dpbench profile from ...` makes a profile, "
                                       "`dpbench profile show FILE` prints one");
    dpb_config_destroy(request.settings);
    return dpb_status_exit_code(status);
}

DPB_PROGRAM("profile", command_profile)
