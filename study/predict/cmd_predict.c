/* cmd_predict.c - `dpbench predict RESULT.json | PROFILE --link RATE,LATENCY ...`: reads the
 * arguments. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/log.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "lib/accelerator/accelerator.h"
#include "plan/delay.h"
#include "study/document/read.h"
#include "study/predict/emulated_run.h"
#include "study/predict/predict_report.h"

enum { WORD = DPB_EMULATED_STRATEGY };

struct reading {
    const struct dpb_command *self;
    struct dpb_predict_request request;
    struct dpb_accelerator profile;               /* @owned; zeros: the subject is a result */
    struct dpb_delay delay;                       /* @owned */
    json_t *result, *files[DPB_PREDICT_LIST + 2]; /* @owned; the last: of --inside, of --codec */
    char codec[WORD];
    char words[DPB_PREDICT_LIST][WORD]; /* of --strategies */
    bool json;
};

static dpb_status parse_rate(const struct reading *r, const char *option, const char *text,
                             double *bytes_per_s)
{
    uint64_t value;
    if (dpb_parse_quantity(text, dpb_rate_units, NULL, &value) != DPB_PARSED || value == 0)
        return dpb_usage_error(r->self,
                               "%s: '%s' is no rate: write a number with kbit, Mbit, Gbit, kB, MB "
                               "or GB (a second), as in 10Gbit",
                               option, text);
    *bytes_per_s = (double)value;
    return DPB_OK;
}

/* "10Gbit,50us" */
static dpb_status parse_cost(const struct reading *r, const char *option, const char *text,
                             struct dpb_cost *cost)
{
    char rate[WORD];
    uint64_t latency_ns;
    const char *comma = strchr(text, ',');
    if (!comma || (size_t)(comma - text) >= sizeof rate ||
        dpb_parse_quantity(comma + 1 + strspn(comma + 1, " "), dpb_time_units, NULL, &latency_ns) !=
            DPB_PARSED)
        return dpb_usage_error(r->self, "%s: '%s' is not RATE,LATENCY: write it as in 10Gbit,50us",
                               option, text);
    snprintf(rate, sizeof rate, "%.*s", (int)(comma - text), text);
    cost->latency_s = (double)latency_ns / 1e9;
    return parse_rate(r, option, rate, &cost->bytes_per_s);
}

/* The next word of a list; NULL: none, or it is too long. */
static const char *next_word(const char *at, char word[WORD])
{
    const size_t length = strcspn(at, ",");
    if (length == 0 || length >= WORD)
        return NULL;
    memcpy(word, at, length);
    word[length] = '\0';
    return at + length + (at[length] == ',');
}

static dpb_status refuse_twice(const struct reading *r, const char *option, const char *word)
{
    return dpb_usage_error(r->self, "%s: '%s' stands twice in the list: name it once", option,
                           word);
}

static dpb_status parse_list(const struct reading *r, const char *option, const char *text,
                             const struct dpb_unit *units, uint64_t most, double *values,
                             size_t *n_values)
{
    char word[WORD];
    size_t n = 0;
    for (const char *at = text; n == 0 || *at != '\0';) {
        int64_t number = 0;
        uint64_t quantity = 0;
        at = next_word(at, word);
        dpb_parsed parsed = !at     ? DPB_PARSED_MALFORMED
                            : units ? dpb_parse_quantity(word, units, "B", &quantity)
                                    : dpb_parse_int(word, &number);
        quantity = units ? quantity : number < 0 ? 0 : (uint64_t)number;
        if (parsed != DPB_PARSED || quantity == 0 || quantity > most || n == DPB_PREDICT_LIST)
            return dpb_usage_error(r->self,
                                   "%s: '%s' is no list of up to %d numbers from 1 to %llu", option,
                                   text, DPB_PREDICT_LIST, (unsigned long long)most);
        for (size_t i = 0; i < n; i++)
            if (values[i] == (double)quantity)
                return refuse_twice(r, option, word);
        values[n++] = (double)quantity;
    }
    *n_values = n;
    return DPB_OK;
}

static dpb_status parse_strategies(struct reading *r, const char *text)
{
    for (const char *at = text; *at != '\0' || r->request.n_strategies == 0;) {
        const size_t n = r->request.n_strategies;
        at = n < DPB_PREDICT_LIST ? next_word(at, r->words[n]) : NULL;
        if (!at)
            return dpb_usage_error(r->self, "--strategies: '%s' is no list of strategies", text);
        for (size_t i = 0; i < n; i++)
            if (strcmp(r->words[i], r->words[n]) == 0)
                return refuse_twice(r, "--strategies", r->words[n]);
        r->request.strategies[n] = r->words[n];
        r->request.n_strategies++;
    }
    return DPB_OK;
}

static dpb_status parse_one(const struct reading *r, const char *option, const char *text,
                            uint32_t *value)
{
    double values[DPB_PREDICT_LIST];
    size_t n;
    DPB_TRY(parse_list(r, option, text, NULL, DPB_PREDICT_WORKERS, values, &n));
    if (n != 1)
        return dpb_usage_error(r->self, "%s takes one number", option);
    *value = (uint32_t)values[0];
    return DPB_OK;
}

/* A document of `dpbench COMMAND --output`. */
static dpb_status read_document(const char *option, const char *path, const char *command,
                                json_t **document)
{
    json_error_t error;
    const char *schema = strcmp(command, "comm") == 0 ? "dpbench.comm/1" : "dpbench.links/1";
    *document = dpb_document_load(path, &error);
    if (!*document)
        return dpb_fail(DPB_USAGE, "%s %s: %s", option, path, error.text);
    if (!dpb_json_is(*document, "schema", schema))
        return dpb_fail(DPB_USAGE, "%s: %s takes a document of `dpbench %s --output`, schema %s",
                        path, option, command, schema);
    const char *operation = dpb_json_text(*document, "operation", "all_reduce");
    if (strcmp(operation, "all_reduce") != 0)
        return dpb_fail(DPB_USAGE,
                        "%s is of %s, and a step has an all-reduce: leave "
                        "comm_test.operation out",
                        path, operation);
    return DPB_OK;
}

/* RATE,LATENCY has a comma; all else is a file. */
static dpb_status take_inside(struct reading *r, const char *option, const char *text)
{
    struct dpb_predict_link *inside = &r->request.inside;
    *inside = (struct dpb_predict_link){.name = text, .cost = {.bytes_per_s = INFINITY}};
    if (strchr(text, ','))
        return parse_cost(r, option, text, &inside->cost);
    json_t **file = &r->files[DPB_PREDICT_LIST];
    json_decref(*file); /* of an earlier --inside */
    DPB_TRY(read_document(option, text, "comm", file));
    inside->comm = *file;
    return DPB_OK;
}

/* NAME,COMM.json */
static dpb_status take_codec(struct reading *r, const char *option, const char *text)
{
    json_t **file = &r->files[DPB_PREDICT_LIST + 1];
    const char *path = next_word(text, r->codec);
    if (!path || *path == '\0')
        return dpb_usage_error(r->self,
                               "%s: '%s' is not NAME,COMM.json: a codec, and a document of "
                               "`dpbench comm --output` that has its speed",
                               option, text);
    json_decref(*file); /* of an earlier --codec */
    DPB_TRY(read_document(option, path, "comm", file));
    r->request.codec = r->codec;
    r->request.codec_comm = *file;
    return DPB_OK;
}

static dpb_status add_link(struct reading *r, const char *option, const char *text)
{
    struct dpb_predict_request *request = &r->request;
    const size_t n = request->n_links;
    if (n == DPB_PREDICT_LIST)
        return dpb_usage_error(r->self, "up to %d links at a time", DPB_PREDICT_LIST);
    request->links[n].name = text;
    request->n_links++;
    if (strcmp(option, "--link") == 0)
        return parse_cost(r, option, text, &request->links[n].cost);
    const bool network = strcmp(option, "--links") == 0;
    request->links[n].cost.bytes_per_s = INFINITY;
    DPB_TRY(read_document(option, text, network ? "links network" : "comm", &r->files[n]));
    *(network ? &request->links[n].network : &request->links[n].comm) = r->files[n];
    return DPB_OK;
}

/* The words of run.delay. */
static dpb_status parse_delay(struct reading *r, const char *option, const char *text)
{
    dpb_delay_destroy(&r->delay); /* of an earlier --delay */
    DPB_TRY(dpb_delay_make(text, option, "all", option, 1, 0, &r->delay));
    const bool none = r->delay.kind == DPB_DELAY_NONE;
    r->request.delay = none ? NULL : &r->delay;
    r->request.delay_text = none ? NULL : text;
    return DPB_OK;
}

/* "2:1" */
static dpb_status parse_uplink(struct reading *r, const char *option, const char *text)
{
    char ratio[WORD];
    const char *colon = strchr(text, ':');
    if (!colon || strcmp(colon, ":1") != 0 || (size_t)(colon - text) >= sizeof ratio)
        return dpb_usage_error(r->self, "%s: '%s' is not RATIO:1: write it as in 2:1", option,
                               text);
    snprintf(ratio, sizeof ratio, "%.*s", (int)(colon - text), text);
    if (dpb_parse_real(ratio, &r->request.uplink) != DPB_PARSED || !(r->request.uplink >= 1))
        return dpb_usage_error(r->self, "%s: '%s' is no ratio of 1 or more", option, text);
    return DPB_OK;
}

/* Elements a second. */
static dpb_status parse_update(struct reading *r, const char *option, const char *text)
{
    double *rate = &r->request.update_elements_per_s;
    if (dpb_parse_real(text, rate) != DPB_PARSED || !(*rate > 0))
        return dpb_usage_error(r->self,
                               "%s: '%s' is no speed of an optimizer: write the elements that it "
                               "updates in a second, as in 2.5e10",
                               option, text);
    return DPB_OK;
}

static dpb_status take_option(struct reading *r, const char *option, const char *text)
{
    struct dpb_predict_request *request = &r->request;
    if (strcmp(option, "--link") == 0 || strcmp(option, "--comm") == 0 ||
        strcmp(option, "--links") == 0)
        return add_link(r, option, text);
    if (strcmp(option, "--workers") == 0)
        return parse_list(r, option, text, NULL, DPB_PREDICT_WORKERS, request->workers,
                          &request->n_workers);
    if (strcmp(option, "--buckets") == 0)
        return parse_list(r, option, text, dpb_size_units, INT64_MAX, request->buckets,
                          &request->n_buckets);
    if (strcmp(option, "--batches") == 0)
        return parse_list(r, option, text, NULL, 1 << 30, request->batches, &request->n_batches);
    if (strcmp(option, "--strategies") == 0)
        return parse_strategies(r, text);
    if (strcmp(option, "--per-machine") == 0)
        return parse_one(r, option, text, &request->per_machine);
    if (strcmp(option, "--servers") == 0)
        return parse_one(r, option, text, &request->servers);
    if (strcmp(option, "--host") == 0)
        return parse_cost(r, option, text, &request->host);
    if (strcmp(option, "--codec") == 0)
        return take_codec(r, option, text);
    if (strcmp(option, "--delay") == 0)
        return parse_delay(r, option, text);
    if (strcmp(option, "--uplink") == 0)
        return parse_uplink(r, option, text);
    if (strcmp(option, "--update") == 0)
        return parse_update(r, option, text);
    if (strcmp(option, "--inside") == 0)
        return take_inside(r, option, text);
    return dpb_unknown_option(r->self, option);
}

static dpb_status parse(struct reading *r, int argc, char **argv)
{
    struct dpb_predict_request *request = &r->request;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            r->json = true;
        else if (argv[i][0] == '-' && i + 1 == argc)
            return strchr(argv[i], '=')
                       ? dpb_unknown_option(r->self, argv[i])
                       : dpb_usage_error(r->self, "%s is unknown, or needs a value", argv[i]);
        else if (argv[i][0] == '-') {
            DPB_TRY(take_option(r, argv[i], argv[i + 1]));
            i++;
        } else if (request->path)
            return dpb_usage_error(r->self, "one result or profile at a time: '%s' is a second",
                                   argv[i]);
        else
            request->path = argv[i];
    }
    if (!request->path)
        return dpb_usage_error(r->self, "which result or profile? give that of a run with one "
                                        "worker, or a profile's file or name");
    return DPB_OK;
}

/* A document of that schema; or no file, and the name of a profile that came with dpbench. */
static bool is_profile(const char *path)
{
    if (access(path, F_OK) != 0)
        return !strpbrk(path, "./");
    json_error_t error;
    json_t *document = dpb_document_load(path, &error);
    const bool is = dpb_json_is(document, "schema", "dpbench.profile/1");
    json_decref(document);
    return is;
}

static dpb_status has_link(const struct reading *r)
{
    if (r->request.n_links > 0)
        return DPB_OK;
    return dpb_usage_error(r->self, "over which link? give --link RATE,LATENCY, as in "
                                    "10Gbit,50us, --links LINKS.json or --comm COMM.json");
}

static dpb_status read_subject(struct reading *r)
{
    struct dpb_predict_request *request = &r->request;
    const char *profile = request->path;
    char why[DPB_ACCELERATOR_WHY];
    if (!is_profile(request->path)) {
        if (request->update_elements_per_s > 0)
            return dpb_usage_error(r->self,
                                   "--update is a profile's: a result has measured updates");
        DPB_TRY(dpb_result_read(request->path, &r->result));
        request->result = r->result;
        if (!dpb_emulated_is(r->result))
            return has_link(r);
        DPB_TRY(dpb_emulated_request(r->result, request, r->words[0]));
        profile = dpb_json_text(r->result, "config.device.profile.value", "");
    }
    DPB_TRY(has_link(r));
    if (!dpb_accelerator_read(profile, &r->profile, why))
        return dpb_fail(DPB_USAGE, "%s", why);
    request->profile = &r->profile;
    return DPB_OK;
}

static dpb_status predict(struct reading *r)
{
    json_t *document = NULL;
    DPB_TRY(read_subject(r));
    DPB_TRY(dpb_predict_report_make(&r->request, &document));
    DPB_TRY(dpb_allocated(document));
    dpb_document_print(document, r->json, dpb_predict_report_print);
    json_decref(document);
    return DPB_OK;
}

static int command_predict(const struct dpb_command *self, int argc, char **argv)
{
    struct reading r = {.self = self,
                        .request = {.per_machine = 1,
                                    .inside = {.cost = {.bytes_per_s = INFINITY}},
                                    .host = {.bytes_per_s = INFINITY}}};
    dpb_status status = parse(&r, argc, argv);
    DPB_THEN(status, predict(&r));
    json_decref(r.result);
    dpb_accelerator_release(&r.profile);
    dpb_delay_destroy(&r.delay);
    for (size_t i = 0; i < sizeof r.files / sizeof r.files[0]; i++)
        json_decref(r.files[i]);
    return dpb_status_exit_code(status);
}

DPB_PROGRAM("predict", command_predict)
