/* cmd_compare.c - `dpbench compare A B`: compares two results, and says whether B is slower. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/parse.h"
#include "cli/cli.h"
#include "study/document/read.h"
#include "study/table/compare.h"

struct request {
    const char *files[2];
    struct dpb_compare_how how;
    double margins[DPB_QUANTITIES];
    const char *undecided;
    bool json;
};

/* "machine,config". */
static dpb_status parse_same(const struct dpb_command *self, const char *text, const char **same)
{
    static const char *const parts[] = {"config",   "inputs",      "machine",
                                        "versions", "environment", NULL};
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        size_t length = strcspn(at, ","), i = 0;
        while (parts[i] && (strlen(parts[i]) != length || strncmp(parts[i], at, length) != 0))
            i++;
        if (!parts[i])
            return dpb_usage_error(self, "--require-same takes a list of config, inputs, machine, "
                                         "versions, environment, as in machine,config");
    }
    *same = text;
    return DPB_OK;
}

/* "--accuracy" and the like; DPB_QUANTITIES: another word. */
static enum dpb_quantity_id quantity_of(const char *word)
{
    enum dpb_quantity_id id = 0;
    while (id < DPB_QUANTITIES &&
           (strncmp(word, "--", 2) != 0 || strcmp(word + 2, dpb_quantities[id].name) != 0))
        id++;
    return id;
}

static bool judges(const struct request *request)
{
    bool any = isfinite(request->how.threshold) != 0;
    for (size_t i = 0; i < DPB_QUANTITIES; i++)
        any |= isfinite(request->margins[i]) != 0;
    return any;
}

static dpb_status parse(const struct dpb_command *self, int argc, char **argv,
                        struct request *request)
{
    int n = 0;
    for (int i = 1; i < argc; i++) {
        const enum dpb_quantity_id id = quantity_of(argv[i]);
        if (id < DPB_QUANTITIES)
            DPB_TRY(
                dpb_compare_margin(self, id, i + 1 < argc ? argv[++i] : "", &request->margins[id]));
        else if (strcmp(argv[i], "--json") == 0)
            request->json = true;
        else if (strcmp(argv[i], "--threshold") == 0)
            DPB_TRY(dpb_compare_threshold(self, i + 1 < argc ? argv[++i] : "",
                                          &request->how.threshold));
        else if (strcmp(argv[i], "--undecided") == 0)
            DPB_TRY(
                dpb_compare_undecided(self, i + 1 < argc ? argv[++i] : "", &request->undecided));
        else if (strcmp(argv[i], "--require-same") == 0)
            DPB_TRY(parse_same(self, i + 1 < argc ? argv[++i] : "", &request->how.same));
        else if (argv[i][0] == '-')
            return dpb_unknown_option(self, argv[i]);
        else if (n == 2)
            return dpb_usage_error(self, "two results at a time: '%s' is a third", argv[i]);
        else
            request->files[n++] = argv[i];
    }
    if (n != 2)
        return dpb_usage_error(self, "which two results? give their files");
    if (request->undecided && !judges(request))
        return dpb_usage_error(self, "--undecided: nothing is judged without --threshold");
    return DPB_OK;
}

static dpb_status compare(const struct request *request)
{
    json_t *documents[2] = {NULL, NULL}, *comparison = NULL;
    dpb_status status = dpb_measured_read_printable(request->files[0], &documents[0]);
    DPB_THEN(status, dpb_measured_read_printable(request->files[1], &documents[1]));
    if (status == DPB_OK) {
        const struct dpb_compared a = {request->files[0], documents[0]};
        const struct dpb_compared b = {request->files[1], documents[1]};
        bool regression;
        status = dpb_compare_make(&a, &b, &request->how, &comparison, &regression);
    }
    if (comparison)
        dpb_document_print(comparison, request->json, dpb_compare_print);
    DPB_THEN(status, dpb_compare_status(comparison, request->undecided));
    json_decref(comparison);
    json_decref(documents[0]);
    json_decref(documents[1]);
    return status;
}

static int command_compare(const struct dpb_command *self, int argc, char **argv)
{
    struct request request = {.how = {.threshold = NAN, .margins = request.margins}};
    for (size_t i = 0; i < DPB_QUANTITIES; i++)
        request.margins[i] = NAN;
    dpb_status status = parse(self, argc, argv, &request);
    DPB_THEN(status, compare(&request));
    return dpb_status_exit_code(status);
}

DPB_PROGRAM("compare", command_compare)
