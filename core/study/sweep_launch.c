/* sweep_launch.c - a sweep whose cells sweep.launch starts: see sweep_launch.h. */
#include "study/sweep_launch.h"

#include <limits.h>
#include <stdio.h>

#include "base/log.h"
#include "study/launch_line.h"
#include "study/sweep_list.h"
#include "train/experiment.h"

dpb_status dpb_sweep_launch(const struct dpb_sweep *sweep, uint32_t workers, uint32_t servers,
                            uint32_t learners, char ***words, size_t *n_words)
{
    const struct dpb_launch_size size = {workers, servers, learners, (uint32_t)sweep->machines};
    char name[512];
    snprintf(name, sizeof name, "%s: %s.launch", sweep->launch_origin, sweep->study->name);
    return dpb_launch_line(sweep->launch, name, &size, words, n_words);
}

dpb_status dpb_sweep_launch_check(const struct dpb_config *config, struct dpb_sweep *sweep)
{
    static const char *const needs_launch[] = {"machines", "launch_limit_s"};
    const char *section = sweep->study->name;
    char **words = NULL;
    size_t n_words = 0;
    for (size_t i = 0; sweep->launch[0] == '\0' && i < 2; i++)
        if (dpb_config_get(config, section, needs_launch[i]))
            return dpb_config_fail(config, DPB_USAGE, section, needs_launch[i],
                                   "%s.%s without %s.launch: give one, or leave it out", section,
                                   needs_launch[i], section);
    if (sweep->launch[0] == '\0')
        return DPB_OK;
    sweep->launch_origin = dpb_config_origin(config, section, "launch");
    DPB_TRY(dpb_sweep_launch(sweep, 1, 0, 1, &words, &n_words));
    dpb_sweep_list_destroy(words, n_words);
    return DPB_OK;
}

/* Numbers of processes as they are written; a wrong one is refused with the experiment. */
dpb_status dpb_sweep_launch_place(const struct dpb_sweep *sweep, struct dpb_config *config)
{
    char text[PATH_MAX + 128] = "";
    const struct dpb_setting *hosts = dpb_config_get(config, "comm", "hosts");
    if (sweep->launch[0] == '\0')
        return DPB_OK;
    if (hosts) {
        snprintf(text, sizeof text, DPB_LAUNCH_ORIGIN ", %s", hosts->origin);
        return dpb_config_set(config, "comm", "hosts", hosts->value, text);
    }
    const unsigned long learners = dpb_config_count(config, "run", "learners", 1);
    const unsigned long places = dpb_config_count(config, "run", "workers", 1);
    const unsigned long servers = dpb_config_count(config, "run", "servers", 0);
    const bool few = places <= DPB_JOB_RANKS && learners <= DPB_JOB_RANKS;
    const unsigned long workers = few ? places * learners : 0;
    if (sweep->machines > 0 && workers > 0 && workers <= DPB_JOB_RANKS &&
        servers <= DPB_JOB_RANKS && workers + servers <= DPB_JOB_RANKS) {
        const struct dpb_launch_size size = {(uint32_t)workers, (uint32_t)servers,
                                             (uint32_t)learners, (uint32_t)sweep->machines};
        const unsigned long each = dpb_launch_per_machine(&size), rest = (workers + servers) % each;
        int n = snprintf(text, sizeof text, "%lux%lu", (workers + servers) / each, each);
        if (rest > 0)
            snprintf(text + n, sizeof text - (size_t)n, "+%lu", rest);
    }
    return dpb_config_set(config, "comm", "hosts", text, DPB_LAUNCH_ORIGIN);
}
