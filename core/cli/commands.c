/* commands.c - the table of dpbench's own commands, whichever program has them: see cli.h. */
#include <string.h>

#include "cli/cli.h"

const struct dpb_command dpb_commands[] = {
    {"run",
     "dpbench [run] -c FILE.ini | NAME [SECTION.KEY=VALUE ...] [--json | --jsonl] [--output FILE] "
     "[--least | --most FIELD[@KEY=VALUE,...]=NUMBER ...]",
     "run an experiment, or a sweep or search where the file has [sweep] or [tune]"},
    {"tune", "dpbench tune -c FILE.ini | NAME [SECTION.KEY=VALUE ...] [--json] [--output FILE]",
     "search for the best setting along the axes in [tune], in each direction while it gains"},
    {"check", "dpbench check -c FILE.ini | NAME [SECTION.KEY=VALUE ...]",
     "validate everything and say how much memory it needs; run nothing"},
    {"rerun",
     "dpbench rerun RESULT.json [SECTION.KEY=VALUE ... | --resume] [--trust] [--json] [--output "
     "FILE]",
     "repeat the run of a result, or run the rest of a sweep"},
    {"report",
     "dpbench report [--markdown | --csv[=runs | =steps | =evals] | --html FILE | --figure "
     "NAME.svg | "
     "--jsonl | --prometheus] [--each] [--pool FACT] RESULT.json...",
     "print the table of a result again, one table of several, a page with figures, or metrics; "
     "also of comm, data and links"},
    {"compare",
     "dpbench compare A.json B.json [--threshold PERCENT] [--accuracy POINTS] [--loss PERCENT] "
     "[--bytes PERCENT] [--memory PERCENT] [--energy PERCENT] [--time PERCENT] [--samples PERCENT] "
     "[--undecided pass | fail] [--require-same PARTS] [--json]",
     "two runs, two sweeps, or two documents of comm, data or links: all that differs, then the "
     "rates; exit code 4 where B is slower by more than PERCENT, 6 where this is not decided"},
    {"gate",
     "dpbench gate [comm | data | links] --base OLD/dpbench -c FILE.ini | NAME "
     "[SECTION.KEY=VALUE ...] [--repeats N] [--threshold PERCENT [--budget TIME] "
     "[--undecided pass | fail]] [--json] [--output FILE]",
     "run an experiment with another build and with this one, in turns until they decide; exit "
     "code "
     "4 where this one is slower by more than PERCENT, 6 where this is not decided"},
    {"eval",
     "dpbench eval -c FILE.ini | NAME checkpoint.load=FILE [SECTION.KEY=VALUE ...] [--json] "
     "[--output FILE] [--sample N [--prompt TEXT] [--temperature T]]",
     "evaluate a saved model on the test set of an experiment, or print N bytes of text that it "
     "writes; train nothing"},
    {"predict",
     "dpbench predict RESULT.json | PROFILE --link RATE,LATENCY | --links LINKS.json | "
     "--comm COMM.json "
     "[--workers LIST] [--strategies LIST] [--buckets LIST] [--batches LIST] "
     "[--per-machine N --inside RATE,LATENCY | COMM.json] [--servers N] [--host RATE,TIME] "
     "[--uplink RATIO:1] [--delay DELAY] [--codec NAME,COMM.json] [--update RATE] "
     "[--json]",
     "from a run of one worker or an accelerator's profile, the step of many, by strategy, link, "
     "bucket and batch"},
    {"data",
     "dpbench data -c FILE.ini | NAME [SECTION.KEY=VALUE ...] [--json | --jsonl] [--output FILE] "
     "[--least | --most FIELD[@KEY=VALUE,...]=NUMBER ...]",
     "measure how fast the data of an experiment come, by data.threads, under a launcher for all "
     "workers at once; train nothing"},
    {"comm",
     "dpbench comm -c FILE.ini | NAME [SECTION.KEY=VALUE ...] [--json | --jsonl] [--output FILE] "
     "[--least | --most FIELD[@KEY=VALUE,...]=NUMBER ...]",
     "measure an experiment's communicator alone, by size and by the model's buckets; train "
     "nothing"},
    {"links",
     "dpbench links [topology] [memory] [cores] [loopback] [devices] [--window TIME] "
     "[--max SIZE] [--json | --jsonl] [--output FILE] "
     "[--least | --most FIELD[@KEY=VALUE,...]=NUMBER ...], or dpbench links network "
     "[-c FILE.ini | NAME] [SECTION.KEY=VALUE ...] [--json | --jsonl] [--output FILE]",
     "measure how fast memory, cores, loopback and devices pass bytes on, and how they are "
     "connected; by default all of it. network: between machines, under mpirun or srun, and which "
     "machine is slow"},
    {"hosts",
     "dpbench hosts N --rate RATE [--latency TIME] [--uplink K:1] [--slow HOST=RATE ...] "
     "[--dilation D] -- COMMAND ...",
     "run a command on a cluster of N hosts that is on this machine, with a network of its own; as "
     "root"},
    {"profile",
     "dpbench profile from RESULT.json | --rate RATE | --flops N --bandwidth N --share S | "
     "--torch TRACE.json | --chakra TRACE.json [--model NAME] [--tensors FILE] [--batch N] "
     "[--accelerator NAME] [--precision NAME] [--kind KIND] [--source TEXT] [--spread S] "
     "[model.KEY=VALUE ...] [--output FILE], or dpbench profile show FILE | NAME [--json]",
     "make the profile of an accelerator, which a run may emulate: the times of a step, and when "
     "each gradient is final; or show one"},
    {"watch", "dpbench watch [PID]",
     "show the jobs that run on this machine, or that of one launcher, until they end; without a "
     "terminal once"},
    {"plugins", "dpbench plugins [--json]",
     "list the plugins that can be loaded, and the others with the reason"},
    {"list", "dpbench list [WORD ...]",
     "list the experiments that come with dpbench, each with its question; only those that mention "
     "all words"},
    {"new", "dpbench new KIND NAME",
     "write a plugin to begin with, its experiment and its Makefile into a new directory"},
    {"conform", "dpbench conform KIND_NAME.so [SECTION.KEY=VALUE ...]",
     "hold a plugin to the conformance suite of its kind; exit code 3 where it fails"},
    {"help",
     "dpbench help [COMMAND | SECTION | SECTION.KEY | PLUGIN | TERM | models | data | devices | "
     "comm | "
     "codecs | all], or dpbench help matrix [STRATEGY] [--markdown | --csv]",
     "explain commands, options, plugins and terms. matrix: which features work with a strategy, "
     "and with each other"},
    {0},
};

const struct dpb_command *dpb_command_find(const char *name)
{
    for (const struct dpb_command *command = dpb_commands; command->name; command++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}
