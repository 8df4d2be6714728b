/* conform.c - the trial of a device that is not dpbench's own, before a run: see cli.h. */
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/deadline.h"
#include "base/log.h"
#include "base/options.h"
#include "cli/cli.h"

extern char **environ;

enum { MOST_WORDS = 256, OUTPUT_BYTES = 8192 };
static const useconds_t look_us = 5000;

/* Adds SECTION.KEY=VALUE of a setting that is one of the plugin's options. */
static dpb_status add_word(const struct dpb_plugin *plugin, const struct dpb_setting *setting,
                           char **words, size_t *n)
{
    const struct dpb_option *row = dpb_options_find(plugin->options, setting->key);
    if (!row || strcmp(setting->section, dpb_plugin_place[plugin->kind].section) != 0 ||
        *n + 1 == MOST_WORDS)
        return DPB_OK;
    const char *unit = setting->base_units && row->type == DPB_OPT_TIME ? "s" : "";
    return dpb_allocated(asprintf(&words[(*n)++], "%s.%s=%s%s", setting->section, setting->key,
                                  setting->value, unit) >= 0);
}

/* The command line: the device with its options, on the run's model with those. */
static dpb_status list_words(const struct dpb_experiment *experiment, char **words)
{
    const struct dpb_plugin *device = experiment->plugins[DPB_PLUGIN_DEVICE],
                            *model = experiment->plugins[DPB_PLUGIN_MODEL];
    size_t n = 0;
    words[n++] = strdup("dpbench-conform");
    words[n++] = strdup(dpb_plugin_path(device));
    DPB_TRY(dpb_allocated(asprintf(&words[n++], "model.name=%s", model->name) >= 0));
    for (size_t i = 0; i < experiment->config->n_settings; i++) {
        DPB_TRY(add_word(device, &experiment->config->settings[i], words, &n));
        DPB_TRY(add_word(model, &experiment->config->settings[i], words, &n));
    }
    return dpb_allocated(words[0] && words[1]);
}

/* Runs the program until its end or the deadline, its output into `out`. Returns the exit code; -1:
 * it did not start or end. */
static int run(const char *path, char **words, int out, int64_t limit_ns)
{
    posix_spawn_file_actions_t files;
    const struct dpb_deadline deadline = dpb_deadline_in(limit_ns);
    int code = -1;
    pid_t pid;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, out, STDERR_FILENO);
    const int error = posix_spawn(&pid, path, &files, NULL, words, environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0)
        return -1;
    while (waitpid(pid, &code, WNOHANG) == 0) {
        usleep(look_us);
        if (dpb_deadline_passed(deadline))
            kill(pid, SIGKILL);
    }
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}

/* The reason in the program's output: the line that says FAILED or refused. */
static void find_reason(int out, char reason[OUTPUT_BYTES])
{
    const ssize_t n = pread(out, reason, OUTPUT_BYTES - 1, 0);
    reason[n > 0 ? n : 0] = '\0';
    char *at = strstr(reason, "\n  FAILED ");
    at = at ? at : strstr(reason, "\n  refused ");
    at = at ? at + 11 : reason;
    at += strspn(at, " ");
    memmove(reason, at, strlen(at) + 1);
    reason[strcspn(reason, "\n")] = '\0';
}

static dpb_status judge(const struct dpb_plugin *device, const char *path, int code, int out,
                        const char **verdict)
{
    char reason[OUTPUT_BYTES];
    find_reason(out, reason);
    *verdict = code == 0 ? "pass" : code == 2 ? "skipped" : "fail";
    if (code == 2)
        dpb_warn("device_not_tried", "whether device '%s' conforms is not known: %s", device->name,
                 reason);
    if (code == 0 || code == 2)
        return DPB_OK;
    return dpb_fail(DPB_VERIFICATION,
                    "device '%s' (%s) does not conform: %s; run.conform = no leaves the trial out",
                    device->name, path, code == 3 ? reason : "its trial crashed or did not end");
}

dpb_status dpb_conform_before(const struct dpb_experiment *experiment, const char **verdict)
{
    const struct dpb_plugin *device = experiment->plugins[DPB_PLUGIN_DEVICE];
    char program[PATH_MAX], *words[MOST_WORDS + 1] = {NULL};
    *verdict = "not_applicable";
    if (dpb_plugin_is_own(device))
        return DPB_OK;
    *verdict = "skipped";
    if (!experiment->settings.run.conform)
        return DPB_OK;
    if (!dpb_program_find("conform", program))
        return dpb_fail(DPB_IO,
                        "the program dpbench-conform is missing, which tries device '%s'; "
                        "run.conform = no leaves the trial out",
                        device->name);
    const int out = memfd_create("conform", MFD_CLOEXEC);
    dpb_status status = list_words(experiment, words);
    if (status == DPB_OK && out < 0)
        status = dpb_fail(DPB_FAILED, "no memory for the output of dpbench-conform: %s",
                          strerror(errno));
    if (status == DPB_OK) {
        const int code = run(program, words, out, experiment->settings.run.timeout_ns);
        status = judge(device, dpb_plugin_path(device), code, out, verdict);
    }
    for (size_t i = 0; words[i]; i++)
        free(words[i]);
    if (out >= 0)
        close(out);
    return status;
}
