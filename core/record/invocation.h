/*
 * invocation.h - result.invocation, result.inputs and result.versions: how dpbench was called,
 * which files it read, how it was made, and which libraries it was built against and loaded.
 */
#ifndef DPB_CORE_RECORD_INVOCATION_H
#define DPB_CORE_RECORD_INVOCATION_H

#include <jansson.h>
#include <stdbool.h>

#include "plan/experiment.h"

/* result.versions: dpbench and its build, the experiment's plugins, their files and libraries,
 * core's libraries (built against and loaded), compiler, C library, kernel. @owned. */
json_t *dpb_result_versions(const struct dpb_experiment *experiment);
/* Adds the experiment's plugins that `plugins` lacks, as dpb_result_all_versions
 * (study/document/read.h) names them. */
void dpb_result_add_plugins(const struct dpb_experiment *experiment, json_t *plugins);
/* result.invocation: this process's command line and directory, and the environment's variables
 * that change measurements. @owned. */
json_t *dpb_result_invocation(void);
/* result.inputs: the files that the experiment reads (data.path, checkpoint.load, the trace of
 * run.delay): place, number, bytes, fingerprint; null: not given. Call it before the run, which may
 * change them. @owned. */
json_t *dpb_result_inputs(const struct dpb_experiment *experiment);
/* Whether this option names a file or a directory that the run reads. */
bool dpb_result_is_input(const struct dpb_option_table *table, const struct dpb_option *row);
/* Makes relative paths of these settings, in a result's `config`, start from the directory of the
 * result's run, if this is another directory. */
dpb_status dpb_result_locate(const json_t *document, struct dpb_config *config);

#endif
