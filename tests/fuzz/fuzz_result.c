/*
 * fuzz_result.c - a result that `dpbench rerun` is given. What does not depend on the file (the
 * machine, the plugins, the run itself) is left out: mk/fuzz.mk puts the functions below in its
 * place.
 */
#include <stdlib.h>

#include "cli/cli.h"
#include "tests/fuzz/fuzz.h"
#include "world/cores.h"

json_t *__wrap_dpb_machine_describe(void);
dpb_status __wrap_dpb_experiment_create(const struct dpb_config *config,
                                        struct dpb_experiment **experiment);

json_t *__wrap_dpb_machine_describe(void)
{
    return json_pack("{s:s, s:i, s:{s:f}}", "cpu", "fuzz", "cores", 2, "memory", "bytes", 1e9);
}

/* As an unknown plugin: nothing is run. */
dpb_status __wrap_dpb_experiment_create(const struct dpb_config *config,
                                        struct dpb_experiment **experiment)
{
    (void)config, (void)experiment;
    fuzz_used();
    return dpb_fail(DPB_USAGE, "nothing is run here");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct dpb_command self = {.name = "rerun", .usage = "dpbench rerun"};
    char command[] = "rerun", path[64];
    fuzz_begin();
    snprintf(path, sizeof path, "%s", fuzz_file(data, size));
    char *arguments[] = {command, path, NULL};
    FUZZ_CHECK(dpb_command_rerun(&self, 2, arguments) == 2); /* a usage error */
    fuzz_close();
    return 0;
}
