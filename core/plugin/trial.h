/*
 * trial.h - what may end or hang a process, done by a child: loading a shared object, and asking a
 * plugin's driver. A truncated file kills the process that loads it, and a constructor may exit,
 * abort or hang. A driver that has been started has threads, which take the process's signals, and
 * may hold the process when it ends.
 */
#ifndef DPB_CORE_PLUGIN_TRIAL_H
#define DPB_CORE_PLUGIN_TRIAL_H

#include <stdbool.h>
#include <stddef.h>

#include "plugin/check.h"

/* Whether `path` is a regular file that holds all that its program headers map. What is no ELF file
 * is for dlopen to refuse. */
bool dpb_trial_look(const char *path, char *reason, size_t size);

/* `work` leaves up to DPB_TRIAL_BYTES at `answer`, zeroed and aligned to 16 bytes. */
typedef void dpb_trial_work(const void *context, void *answer);
enum { DPB_TRIAL_BYTES = 4096 /* written and read at once */ };
struct dpb_trial {
    const char *what; /* "loading it": the beginning of a reason */
    int64_t limit_ns;
    dpb_trial_work *work;
    const void *context;
};
/* Runs the work in a child, which prints nothing, and ends it. Copies the first `bytes` of its
 * answer. False: no answer came within the limit; `reason` has DPB_REASON_BYTES. */
bool dpb_trial_ask(const struct dpb_trial *trial, void *answer, size_t bytes, char *reason);

/* Loads it and calls its entry, within 5 s. Where an answer comes at all, the caller learns the
 * rest in its own process. */
bool dpb_trial_load(const char *path, const struct dpb_host *host, char *reason);
/* dpb_plugin.missing, within 30 s; a driver that does not answer is missing, too. NULL: nothing is
 * missing. The text is in `text`, DPB_REASON_BYTES. */
const char *dpb_trial_missing(const struct dpb_plugin *plugin, char *text);
/* How processes share the first place's device of that plugin: dpb_device_ops.sharing, within 30 s;
 * zeros where there is no such hook. `options`: NULL, their defaults. Writes the hook's message if
 * it fails. */
dpb_status dpb_trial_sharing(const struct dpb_plugin *device, const void *options,
                             struct dpb_sharing *sharing);

#endif
