#include "nvrtc.h"

#include <ctype.h>
#include <stdarg.h>

/* As much of CUDA C++ as tells the names of kernels, and whether the brackets match. */
struct scan {
	struct source *source;
	const char *at;
	int line;
	bool fresh; /* nothing stands before on this line */
	char word[1024];
	/* what was read of the declaration */
	bool template, c, unnamed;
	char *space; /* the namespace that it opens */
	char *text;  /* its words, outside of functions */
	size_t length, room;
	char *variables[MOST];
	int nvariables;
	/* the scopes open around it */
	struct scope { char *space; bool c, unnamed, outer; int line; } scopes[256];
	int depth, round;
};

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";

void source_error(struct source *s, int line, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	fprintf(s->log, "%s(%d): error: ", s->name, line);
	vfprintf(s->log, format, list);
	fprintf(s->log, "\n\n");
	va_end(list);
	s->errors++;
}

/* macro reads what follows #define, up to the end of the line. It counts as a constant if it is one word, or in brackets. */
static void macro(struct source *s, const char *at, const char *end)
{
	char line[256], *name = line, *value, *rest;

	snprintf(line, sizeof line, "%.*s", (int)(end - at), at);
	name += strspn(name, " \t");
	value = name + strspn(name, letters);
	if (value == name || !isspace((unsigned char)*value))
		return; /* it has arguments, or no value */
	*value++ = 0;
	if ((rest = strstr(value, "//")) || (rest = strstr(value, "/*")))
		*rest = 0;
	value += strspn(value, " \t");
	for (rest = value + strlen(value); rest > value && isspace((unsigned char)rest[-1]);)
		*--rest = 0;
	constant_add(s, name, value[strspn(value, letters)] && (*value != '(' || rest[-1] != ')') ? "?" : value);
}

/* directive skips a line of the preprocessor. */
static void directive(struct scan *t)
{
	const char *at = t->at + 1 + strspn(t->at + 1, " \t");
	int line = t->line;

	if (!strncmp(at, "error", 5) && !isalnum((unsigned char)at[5]))
		source_error(t->source, line, "#error directive: %.*s", (int)strcspn(at + 5 + strspn(at + 5, " \t"), "\n"), at + 5 + strspn(at + 5, " \t"));
	for (; *t->at && *t->at != '\n'; t->at++)
		if (*t->at == '\\' && t->at[1] == '\n') {
			t->at++;
			t->line++;
		}
	if (!strncmp(at, "define", 6) && isspace((unsigned char)at[6]))
		macro(t->source, at + 6, t->at);
}

static void space(struct scan *t)
{
	for (; *t->at; t->at++) {
		if (*t->at == '\n') {
			t->line++;
			t->fresh = true;
		} else if (!strncmp(t->at, "//", 2)) {
			t->at += strcspn(t->at, "\n") - 1;
		} else if (!strncmp(t->at, "/*", 2)) {
			for (t->at += 2; *t->at && strncmp(t->at, "*/", 2); t->at++)
				t->line += *t->at == '\n';
			if (!*t->at)
				return;
			t->at++;
		} else if (*t->at == '#' && t->fresh) {
			directive(t);
			t->at--;
		} else if (!isspace((unsigned char)*t->at)) {
			t->fresh = false;
			return;
		}
	}
}

static void quoted(struct scan *t)
{
	const char *from = t->at;

	for (t->at++; *t->at && *t->at != *from && *t->at != '\n'; t->at++)
		t->at += *t->at == '\\' && t->at[1];
	t->at += *t->at == *from;
	snprintf(t->word, sizeof t->word, "%.*s", (int)(t->at - from), from);
}

/* next reads a name or a number, something in quotes, two colons, or one character. */
static bool next(struct scan *t)
{
	size_t n = 0;

	space(t);
	if (*t->at == '"' || *t->at == '\'') {
		quoted(t);
		return true;
	}
	while ((isalnum((unsigned char)t->at[n]) || t->at[n] == '_') && n < sizeof t->word - 1)
		n++;
	if (!n && *t->at)
		n = strncmp(t->at, "::", 2) ? 1 : 2;
	memcpy(t->word, t->at, n);
	t->word[n] = 0;
	t->at += n;
	return n;
}

static bool is(struct scan *t, const char *word) { return !strcmp(t->word, word); }

/* reset forgets a declaration that is over. */
static void reset(struct scan *t)
{
	free(t->space);
	t->space = 0;
	t->template = t->c = t->unnamed = false;
	t->nvariables = 0;
	t->length = 0;
}

/* push opens a scope. An outer one has declarations as those of the file. */
static void push(struct scan *t, bool outer)
{
	struct scope s = {.space = t->space, .c = t->c, .unnamed = t->unnamed, .outer = outer, .line = t->line};

	t->space = 0;
	if (t->depth < 256)
		t->scopes[t->depth] = s;
	t->depth++;
	reset(t);
}

static void pop(struct scan *t)
{
	if (!t->depth) {
		source_error(t->source, t->line, "expected a declaration");
		return;
	}
	if (--t->depth < 256)
		free(t->scopes[t->depth].space);
	reset(t);
}

/* angles reads a list in angle brackets, and what its parts are called. */
static void angles(struct scan *t)
{
	int depth = 0;
	char last[sizeof t->word] = "";

	while (next(t)) {
		depth += is(t, "<") - is(t, ">");
		if ((is(t, ",") && depth == 1) || !depth) {
			if (t->nvariables < MOST)
				t->variables[t->nvariables++] = strdup(last);
			if (!depth)
				return;
		} else if (isalpha((unsigned char)t->word[0]) || t->word[0] == '_') {
			strcpy(last, t->word);
		}
	}
}

/* rounded skips to the closing bracket, after the opening one. */
static void rounded(struct scan *t)
{
	for (int depth = 1; depth && next(t);)
		depth += is(t, "(") - is(t, ")");
}

static char *joined(const char *a, const char *between, const char *b)
{
	char *to;

	return asprintf(&to, "%s%s%s", a, between, b) < 0 ? 0 : to;
}

/* qualified is a name with the namespaces that it is in. */
static char *qualified(struct scan *t, const char *name)
{
	char *all = strdup("");

	for (int i = 0; i < t->depth && i < 256; i++)
		if (t->scopes[i].space)
			all = joined(all, "", joined(t->scopes[i].space, "::", ""));
	return joined(all, "", name);
}

static void parameters(struct scan *t, struct kernel *k)
{
	char text[2048] = "";
	int depth = 1;

	while (next(t)) {
		depth += is(t, "(") + is(t, "<") - is(t, ")") - is(t, ">");
		if ((is(t, ",") && depth == 1) || !depth) {
			if (*text && strcmp(text, " void") && k->nparameters < MOST)
				k->parameters[k->nparameters++] = strdup(text);
			*text = 0;
			if (!depth)
				return;
		} else if (strlen(text) + strlen(t->word) + 2 < sizeof text) {
			bool joins = is(t, "::") || !strcmp(text + strlen(text) - 2 * (strlen(text) > 1), "::");

			strcat(strcat(text, joins ? "" : " "), t->word);
		}
	}
}

static bool attribute(const char *name)
{
	static const char *const all[] = {"__launch_bounds__", "__cluster_dims__", "__block_size__", "__maxnreg__", "__attribute__", "alignas", "decltype"};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (!strcmp(all[i], name))
			return true;
	return false;
}

static bool linked_as_c(struct scan *t)
{
	bool c = t->c;

	for (int i = 0; i < t->depth && i < 256; i++)
		c |= t->scopes[i].c;
	return c;
}

static void kernel_add(struct source *s, const struct kernel *k)
{
	for (int i = 0; i < s->n; i++) /* the branches of an #if may both have it */
		if (!strcmp(s->kernels[i].name, k->name) && !k->narguments && !s->kernels[i].narguments)
			return;
	s->kernels = realloc(s->kernels, (s->n + 1) * sizeof *k);
	s->kernels[s->n++] = *k;
}

/* kernel reads what follows __global__, up to the body. */
static void kernel(struct scan *t)
{
	struct kernel k = {.template = t->template, .c = linked_as_c(t)};
	char name[sizeof t->word] = "";
	int line = t->line;

	while (next(t) && !is(t, "{") && !is(t, ";")) {
		if (is(t, "<"))
			return; /* one form of a template: it is named by an expression */
		if (!is(t, "(")) {
			strcpy(name, t->word);
		} else if (attribute(name)) {
			rounded(t);
		} else if (!k.name) {
			k.name = qualified(t, name);
			parameters(t, &k);
		}
	}
	if (!k.name)
		source_error(t->source, line, "expected a declaration of a function after __global__");
	memcpy(k.variables, t->variables, sizeof k.variables);
	k.nvariables = t->nvariables;
	if (k.name && is(t, "{"))
		kernel_add(t->source, &k);
	if (is(t, "{"))
		push(t, false);
	else
		reset(t);
}

static void namespace(struct scan *t)
{
	char *name = strdup("");

	for (space(t); *t->at && !strchr("{=;", *t->at); space(t)) {
		next(t);
		name = joined(name, "", t->word);
	}
	t->space = *name ? name : 0;
	t->unnamed = !*name;
}

static bool outer(struct scan *t)
{
	for (int i = 0; i < t->depth; i++)
		if (i >= 256 || !t->scopes[i].outer)
			return false;
	return true;
}

/* collect adds the word to the text of the declaration. */
static void collect(struct scan *t)
{
	size_t n = strlen(t->word);

	if (t->length + n + 2 > t->room)
		t->text = realloc(t->text, t->room = 2 * (t->length + n + 2));
	memcpy(t->text + t->length, t->word, n);
	t->length += n;
	strcpy(t->text + t->length, "\n");
	t->length++;
}

/* opened goes into braces. Those of a value are collected. */
static void opened(struct scan *t)
{
	bool c = t->length >= 4 && !strcmp(t->text + t->length - 4, "\"C\"\n");

	if (!outer(t) || !t->length || !variable_opens(t->text)) {
		push(t, t->space || t->unnamed || c);
		return;
	}
	for (int depth = 1; depth;) {
		collect(t);
		if (!next(t))
			break;
		depth += is(t, "{") - is(t, "}");
	}
	collect(t);
}

/* ended reads a declaration up to its semicolon. */
static void ended(struct scan *t)
{
	struct declaration d = {.text = t->text, .space = qualified(t, ""), .c = linked_as_c(t), .line = t->line};

	for (int i = 0; i < t->depth && i < 256; i++)
		d.unnamed |= t->scopes[i].unnamed;
	if (outer(t) && t->length && !t->template)
		variable_read(t->source, &d);
	reset(t);
}

static void declaration(struct scan *t)
{
	if (is(t, "{"))
		opened(t);
	else if (is(t, "}"))
		pop(t);
	else if (is(t, ";"))
		ended(t);
	else if (outer(t))
		collect(t);
	if (is(t, "(") || is(t, ")"))
		t->round += is(t, "(") ? 1 : -1;
	else if (is(t, "namespace"))
		namespace(t);
	else if (is(t, "template"))
		angles(t), t->template = true;
	else if (is(t, "\"C\""))
		t->c = true;
	else if (is(t, "__global__"))
		kernel(t);
	else if (is(t, "__device__") || is(t, "__constant__"))
		t->source->device = true;
	if (t->round < 0) {
		source_error(t->source, t->line, "expected a declaration");
		t->round = 0;
	}
}

void source_read(struct source *s)
{
	struct scan *t = calloc(1, sizeof *t);

	t->source = s;
	t->at = s->text;
	t->line = 1;
	t->fresh = true;
	while (next(t))
		declaration(t);
	if (t->depth)
		source_error(s, t->line, "expected a \"}\"");
	else if (t->round)
		source_error(s, t->line, "expected a \")\"");
	while (t->depth)
		pop(t);
	free(t->text);
	free(t);
}

/* arguments reads those of a template out of an expression, after the first bracket. */
static void arguments(struct kernel *k, const char *at)
{
	const char *from = at;

	k->narguments = 0;
	for (int depth = 1; *at && depth; at++) {
		depth += (*at == '<') - (*at == '>');
		if ((*at == ',' && depth == 1) || !depth) {
			if (k->narguments < MOST && asprintf(&k->arguments[k->narguments], "%.*s", (int)(at - from), from) >= 0)
				k->narguments++;
			from = at + 1;
		}
	}
}

int source_instance(struct source *s, const char *expression)
{
	const char *from = expression + strspn(expression, " &:"), *end = from + strcspn(from, "<");
	size_t n = end - from;

	while (n && isspace((unsigned char)from[n - 1]))
		n--;
	for (int i = 0; i < s->n; i++) {
		struct kernel k = s->kernels[i];

		if (strlen(k.name) != n || strncmp(k.name, from, n) || k.narguments || k.template != (*end == '<'))
			continue;
		if (!k.template)
			return i;
		arguments(&k, end + 1);
		kernel_add(s, &k);
		return s->n - 1;
	}
	return -1;
}
