/*
 * option.h - one row an option: the only source for parsing, validation, `dpbench help`, the
 * effective configuration in results, and the manual page.
 *
 * Every plugin with options needs this header.
 *
 * A plugin declares a struct for its options and a table of rows that point into it. Core parses
 * the plugin's section of the configuration into such a struct and hands it to the plugin's hooks.
 */
#ifndef DPBENCH_OPTION_H
#define DPBENCH_OPTION_H

#include <stddef.h>

typedef enum dpb_option_type {
    DPB_OPT_BOOL,   /* bool:         yes, no, true, false, on, off, 1, 0 */
    DPB_OPT_INT,    /* int64_t:      decimal */
    DPB_OPT_REAL,   /* double */
    DPB_OPT_SIZE,   /* uint64_t:     bytes; B, kB = 1000, KiB = 1024, MB, MiB, GB, GiB; where `unit`
                       is "bytes/s" a rate, as 55 GB/s or 10 Gbit/s */
    DPB_OPT_TIME,   /* int64_t:      nanoseconds; ns, us, ms, s, min; a bare number means `unit` */
    DPB_OPT_STRING, /* const char *: never NULL; @borrowed for as long as the options live */
    DPB_OPT_CHOICE  /* int:          index into `choices` */
} dpb_option_type;

struct dpb_option {
    const char *name; /* the KEY of [section] KEY = value; NULL ends a table */
    dpb_option_type type;
    /* For people; of a bare number for DPB_OPT_TIME; NULL for none. Of a string that is a path:
     * "file" or "directory", which a run reads, or "path". */
    const char *unit;
    const char *def; /* default, in the form a user would write it; NULL: none (zero, "", unset) */
    double min, max; /* inclusive bounds of a number, in base units; equal: unbounded */
    const char *const *choices; /* NULL-terminated; for DPB_OPT_CHOICE */
    size_t offset;              /* of the member in the options struct */
    const char *help;           /* one sentence */
    /* The settings without one of which the option does nothing; NULL: it always acts. The form is
     * one or more, with " or " between, of "SECTION.KEY" (a value that is neither no, none, empty
     * nor the least) and "SECTION.KEY = VALUE, VALUE". */
    const char *needs;
};

/* A row in a macro that has rows of a member of several structs. */
#define DPB_OPTION_ROW(NAME, TYPE, UNIT, DEFAULT, MIN, MAX, CHOICES, STRUCT, MEMBER, HELP, NEEDS) \
    {                                                                                             \
        NAME, DPB_OPT_##TYPE, UNIT, DEFAULT, MIN, MAX, CHOICES, offsetof(STRUCT, MEMBER), HELP,   \
            NEEDS                                                                                 \
    }

#endif
