/*
 * says.h - what a program says, held to what it should: words that are in it, lines of a pattern.
 * Each fails the test with the text that it looked in.
 */
#ifndef DPB_TESTS_LIB_SAYS_H
#define DPB_TESTS_LIB_SAYS_H

#include <stdbool.h>

#include "lib/command.h"

void expect_part(const char *text, const char *part);
/* All of the words, ended by NULL; `title` is the case's, in the message. */
void expect_words(const char *title, const char *text, const char *const *words);
#define EXPECT_WORDS(title, text, ...) expect_words(title, text, WORDS(__VA_ARGS__))

/* Whether a line of the text matches an extended regular expression. */
bool has_line(const char *text, const char *pattern);
void expect_line(const char *text, const char *pattern);

#endif
