/* cmd_report.c - `dpbench report`: kept results as one table, each for itself, in lines for a
 * program, or as a page. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/log.h"
#include "base/output.h"
#include "base/text.h"
#include "cli/cli.h"
#include "record/result.h"
#include "record/result_file.h"
#include "record/series.h"
#include "study/document/spill.h"
#include "study/document/read.h"
#include "study/page/figure.h"
#include "study/page/page.h"
#include "study/table/forms.h"
#include "study/table/merge.h"
#include "study/table/series_forms.h"
#include "study/table/sweep_print.h"

/* The words of a `dpbench report`. */
struct request {
    const char **paths; /* @owned */
    int n;
    dpb_print_document *form;
    const char *page, *figure, *pool;
    bool each; /* one after the other, not merged */
    bool prometheus, jsonl;
};

/* A run has a table and lines for a program, but no rows. */
static dpb_status print(const struct request *request, const char *path, json_t *document)
{
    const bool is_sweep = dpb_json_is(document, "schema", "dpbench.sweep/1");
    if (!request->form) {
        (is_sweep ? dpb_sweep_print : dpb_result_print)(document, stdout);
        return DPB_OK;
    }
    if (!is_sweep && request->form != dpb_runs_csv && request->form != dpb_steps_csv &&
        request->form != dpb_evals_csv)
        return dpb_fail(DPB_USAGE,
                        "%s: a run has no rows; --markdown and --csv are for sweeps and for "
                        "several results",
                        path);
    json_t *runs = is_sweep ? json_incref(document) : json_pack("{s:[O]}", "runs", document);
    DPB_TRY(dpb_allocated(runs));
    request->form(runs, stdout);
    json_decref(runs);
    return DPB_OK;
}

static dpb_status print_named(const struct request *request, int i, json_t *document)
{
    json_t *name = dpb_json_file(request->paths[i], strlen(request->paths[i]));
    if (i > 0)
        putchar('\n');
    if (!request->form)
        printf("%s\n", dpb_json_text(name, "", "?"));
    json_decref(name);
    return print(request, request->paths[i], document);
}

/* Documents as one table, CSV, metrics or lines of their series. */
static dpb_status show_series(const struct request *request, const struct dpb_compared *documents,
                              size_t n)
{
    if (request->prometheus)
        return dpb_series_prometheus(documents, n, stdout);
    for (size_t i = 0; i < n && request->jsonl; i++)
        dpb_series_lines(documents[i].document, stdout);
    if (request->jsonl)
        return DPB_OK;
    if (request->page || request->figure || request->pool ||
        (request->form && request->form != dpb_sweep_csv))
        return dpb_fail(DPB_USAGE,
                        "--html, --figure, --markdown, --csv=runs, =steps, =evals and "
                        "--pool are for runs and sweeps; documents of comm, data and links have "
                        "a table, --csv, --jsonl and --prometheus");
    (request->form ? dpb_series_csv : dpb_series_print)(documents, n, stdout);
    return DPB_OK;
}

/* Prints all, or adds all to a page. One document after the other: a long run takes much memory. */
static dpb_status show_each(const struct request *request, struct dpb_page *page)
{
    dpb_status status = DPB_OK;
    for (int i = 0; i < request->n && status == DPB_OK; i++) {
        json_t *document = NULL;
        DPB_TRY(dpb_measured_read_printable(request->paths[i], &document));
        const struct dpb_compared one = {request->paths[i], document};
        if (!dpb_result_is(document))
            status = show_series(request, &one, 1);
        else if (page)
            dpb_page_add(page, request->paths[i], document);
        else
            status = print_named(request, i, document);
        json_decref(document);
    }
    return status;
}

/* Merges the documents of all paths into one, or, where one of them is no run and no sweep, or a
 * form of series is asked for, shows their series: *document is NULL then. Names of metrics and
 * lines are not for people. */
static dpb_status merge(const struct request *request, json_t **document)
{
    struct dpb_compared *results = calloc((size_t)request->n + 1, sizeof *results);
    json_t *documents = json_array();
    bool series = request->prometheus || request->jsonl;
    dpb_status (*read_one)(const char *, json_t **) =
        series ? dpb_measured_read : dpb_measured_read_printable;
    dpb_status status = dpb_allocated(results && documents);
    for (int i = 0; i < request->n && status == DPB_OK; i++) {
        json_t *read = NULL;
        status = read_one(request->paths[i], &read);
        json_array_append_new(documents, read);
        results[i] = (struct dpb_compared){request->paths[i], read};
        series |= status == DPB_OK && !dpb_result_is(read);
        if (dpb_json_is(read, "schema", "dpbench.result/1"))
            dpb_run_spill(read, i > 0 ? results[i - 1].document : NULL);
    }
    DPB_THEN(status, series ? show_series(request, results, (size_t)request->n)
                            : dpb_merge(results, (size_t)request->n, request->pool, document));
    json_decref(documents);
    free(results);
    return status;
}

/* The same as one table. */
static dpb_status show_merged(const struct request *request, struct dpb_page *page)
{
    json_t *document = NULL;
    DPB_TRY(merge(request, &document));
    if (!document)
        return DPB_OK;
    if (page)
        dpb_page_add(page, "all results", document);
    else
        print(request, "", document);
    if (request->form && request->form != dpb_sweep_markdown)
        dpb_merge_notes(document, stderr); /* CSV has no room for it */
    json_decref(document);
    return DPB_OK;
}

/* NULL: no such option. */
static dpb_print_document *form_of(const char *option)
{
    return strcmp(option, "--markdown") == 0    ? dpb_sweep_markdown
           : strcmp(option, "--csv") == 0       ? dpb_sweep_csv
           : strcmp(option, "--csv=runs") == 0  ? dpb_runs_csv
           : strcmp(option, "--csv=steps") == 0 ? dpb_steps_csv
           : strcmp(option, "--csv=evals") == 0 ? dpb_evals_csv
                                                : NULL;
}

/* Puts the page's figure of the file's name in the place of the page. */
static dpb_status draw(const struct request *request, const char *templates, char **text,
                       size_t *length)
{
    char script[PATH_MAX + 16], name[NAME_MAX + 1], *svg = NULL;
    const char *slash = strrchr(request->figure, '/'), *file = slash ? slash + 1 : request->figure;
    snprintf(script, sizeof script, "%s/figure.js", templates);
    snprintf(name, sizeof name, "%.*s", (int)(strlen(file) - strlen(".svg")), file);
    DPB_TRY(dpb_figure_make(script, name, *text, *length, &svg, length));
    free(*text);
    *text = svg;
    return DPB_OK;
}

static dpb_status write_page(const struct request *request)
{
    char templates[PATH_MAX], path[PATH_MAX + 16], *template = NULL, *text = NULL;
    const char *file = request->figure ? request->figure : request->page;
    size_t length = 0;
    DPB_TRY(dpb_shared_directory("templates", templates));
    snprintf(path, sizeof path, "%s/report.html", templates);
    DPB_TRY(dpb_shared_read(path, &template));
    struct dpb_page *page = dpb_page_create();
    dpb_status status = dpb_allocated(page);
    if (request->n > 1 && !request->each) /* before the results */
        DPB_THEN(status, show_merged(request, page));
    DPB_THEN(status, show_each(request, page));
    DPB_THEN(status, dpb_page_finish(page, template, &text, &length));
    dpb_page_destroy(page);
    if (request->figure)
        DPB_THEN(status, draw(request, templates, &text, &length));
    DPB_THEN(status, dpb_output_write(file, text, length));
    if (status == DPB_OK)
        dpb_log(DPB_LOG_INFO, "%s: %s", request->figure ? "figure" : "report", file);
    free(template);
    free(text);
    return status;
}

/* `--html *.json` must not put a page in the place of the first result. */
static dpb_status check_page(const struct dpb_command *self, const char *file)
{
    if (!file || !(dpb_ends_on(file, ".html") || dpb_ends_on(file, ".htm")))
        return dpb_usage_error(self, "--html needs the name of a file that ends on .html");
    return dpb_output_check("--html", file);
}

static dpb_status check_figure(const struct dpb_command *self, const char *file)
{
    if (file && dpb_ends_on(file, ".png"))
        return dpb_usage_error(self,
                               "--figure %s: --figure writes SVG alone: name the file %.*s.svg, or "
                               "save the figure as PNG from the page of --html",
                               file, (int)(strlen(file) - strlen(".png")), file);
    if (!file || !dpb_ends_on(file, ".svg"))
        return dpb_usage_error(self,
                               "--figure needs a file that ends on .svg and has the name of a "
                               "figure, as in speedup.svg");
    return dpb_output_check("--figure", file);
}

static dpb_status check(const struct dpb_command *self, const struct request *request)
{
    if (request->n == 0)
        return dpb_usage_error(self, "which results? give their files");
    if ((request->page != NULL) + (request->figure != NULL) + (request->form != NULL) +
            request->prometheus + request->jsonl >
        1)
        return dpb_usage_error(
            self,
            "one form at a time: --html, --figure, --markdown, --csv, --jsonl or --prometheus");
    for (int i = 0; i < request->n; i++) {
        const struct dpb_named_file files[] = {{"--html", request->page, true},
                                               {"--figure", request->figure, true},
                                               {"the result", request->paths[i], false}};
        DPB_TRY(dpb_outputs_apart(files, 3));
    }
    return DPB_OK;
}

static dpb_status parse(const struct dpb_command *self, int argc, char **argv,
                        struct request *request)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--html") == 0) {
            if (request->page)
                return dpb_usage_error(self, "one page at a time: --html twice");
            request->page = i + 1 < argc ? argv[++i] : NULL;
            DPB_TRY(check_page(self, request->page));
        } else if (strcmp(argv[i], "--figure") == 0) {
            if (request->figure)
                return dpb_usage_error(self, "one figure at a time: --figure twice");
            request->figure = i + 1 < argc ? argv[++i] : NULL;
            DPB_TRY(check_figure(self, request->figure));
        } else if (form_of(argv[i])) {
            if (request->form && request->form != form_of(argv[i]))
                return dpb_usage_error(self, "one form at a time: --markdown or --csv");
            request->form = form_of(argv[i]);
        } else if (strcmp(argv[i], "--pool") == 0) {
            request->pool = i + 1 < argc ? argv[++i] : "";
            if (!dpb_begins_with(request->pool, "machine."))
                return dpb_usage_error(self, "--pool takes a fact of machines, as in machine.host");
        } else if (strcmp(argv[i], "--prometheus") == 0) {
            request->prometheus = true;
        } else if (strcmp(argv[i], "--jsonl") == 0) {
            request->jsonl = true;
        } else if (strcmp(argv[i], "--each") == 0) {
            request->each = true;
        } else if (argv[i][0] == '-') {
            return dpb_unknown_option(self, argv[i]);
        } else {
            request->paths[request->n++] = argv[i];
        }
    }
    return check(self, request);
}

static int command_report(const struct dpb_command *self, int argc, char **argv)
{
    struct request request = {.paths = calloc((size_t)argc + 1, sizeof *request.paths)};
    dpb_status status = dpb_allocated(request.paths);
    DPB_THEN(status, parse(self, argc, argv, &request));
    const bool each = (request.n == 1 || request.each) && !request.prometheus && !request.jsonl;
    DPB_THEN(status, request.page || request.figure ? write_page(&request)
                     : each                         ? show_each(&request, NULL)
                                                    : show_merged(&request, NULL));
    free(request.paths);
    return dpb_status_exit_code(status);
}

DPB_PROGRAM("report", command_report)
