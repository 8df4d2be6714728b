/* cmd_report.c - `dpbench report RESULT.json...`: prints the tables of kept results. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/cli.h"
#include "study/json.h"
#include "study/result.h"
#include "study/sweep.h"

/* Prints the table of the run or sweep again. */
static dpb_status report(const char *path)
{
    json_t *read = NULL;
    DPB_TRY(dpb_result_read(path, &read));
    json_t *document = dpb_json_printable(read);
    json_decref(read);
    if (document == NULL)
        return dpb_fail(DPB_NO_MEMORY, "out of memory");
    printf("%s\n", path);
    if (strcmp(dpb_json_text(document, "schema", ""), "dpbench.sweep/1") == 0)
        dpb_sweep_print(document, stdout);
    else
        dpb_result_print(document, stdout);
    json_decref(document);
    return DPB_OK;
}

int dpb_command_report(const struct dpb_command *self, int argc, char **argv)
{
    dpb_status status =
        argc < 2 ? dpb_usage_error(self, "which results? give their files") : DPB_OK;
    for (int i = 1; i < argc && status == DPB_OK; i++) {
        if (argv[i][0] == '-')
            status = dpb_usage_error(self, "unknown option '%s'", argv[i]);
        else if (i > 1)
            putchar('\n');
        if (status == DPB_OK)
            status = report(argv[i]);
    }
    return dpb_status_exit_code(status);
}
