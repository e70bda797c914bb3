#include <ctype.h>

#include "sim.h"

/*
 * As much of PTX as tells what a module has: its kernels with their parameters,
 * and its global variables. The bodies are skipped.
 */
struct text {
	const char *at;
	int line;
	char word[128];
};

static void space(struct text *t)
{
	for (;; t->at++) {
		if (t->at[0] == '/' && t->at[1] == '/')
			while (t->at[1] && t->at[1] != '\n')
				t->at++;
		else if (t->at[0] == '\n')
			t->line++;
		else if (!isspace((unsigned char)*t->at))
			return;
	}
}

/* next reads a word, or one character that is none. */
static const char *next(struct text *t)
{
	size_t n = 0;

	space(t);
	while (n < sizeof t->word - 1 && (isalnum((unsigned char)*t->at) || (*t->at && strchr("._$%", *t->at))))
		t->word[n++] = *t->at++;
	if (!n && *t->at)
		t->word[n++] = *t->at++;
	t->word[n] = 0;
	return t->word;
}

static bool is(struct text *t, const char *word)
{
	return !strcmp(t->word, word);
}

static size_t bytes_of(const char *type)
{
	size_t bits = strlen(type) > 2 ? strtoul(type + 2, 0, 10) : 0;

	return bits / 8;
}

/* variable reads what is behind .param or .global: alignment, type, name and count. */
static bool variable(struct text *t, char *name, size_t *size, size_t *align)
{
	*align = 0;
	if (!strcmp(next(t), ".align")) {
		*align = strtoul(next(t), 0, 10);
		next(t);
	}
	*size = bytes_of(t->word);
	if (!*align)
		*align = *size;
	snprintf(name, 64, "%s", next(t));
	if (*(space(t), t->at) == '[') {
		next(t);
		*size *= strtoul(next(t), 0, 10);
		next(t);
	}
	return *size && *align && name[0];
}

static bool parameters(struct text *t, struct function *f)
{
	size_t offset = 0, size, align;
	char name[64];

	for (next(t); !is(t, ")"); next(t)) {
		if (is(t, ","))
			next(t);
		if (!is(t, ".param") || f->nparams == 64 || !variable(t, name, &size, &align))
			return false;
		offset = (offset + align - 1) / align * align;
		f->params[f->nparams++] = (struct param){offset, size};
		offset += size;
	}
	return true;
}

static bool entry(struct text *t, struct function *f)
{
	int depth = 0;

	snprintf(f->name, sizeof f->name, "%s", next(t));
	f->max_threads = 1024;
	f->attributes[8] = 49152;
	if (strcmp(next(t), "(") || !parameters(t, f))
		return false;
	while (*next(t) && !is(t, "{"))
		if (is(t, ".maxntid"))
			f->max_threads = atoi(next(t));
	for (; t->word[0]; next(t)) {
		depth += is(t, "{") - is(t, "}");
		if (!depth)
			return true;
	}
	return false;
}

static bool directive(struct text *t, struct module *m)
{
	struct global *g = &m->globals[m->nglobals];
	size_t align;

	if (is(t, ".version") || is(t, ".target") || is(t, ".address_size"))
		return *next(t);
	if (is(t, ".extern")) {
		while (*next(t) && !is(t, ";"))
			;
		return true;
	}
	if (!is(t, ".visible"))
		return false;
	next(t);
	if (is(t, ".entry"))
		return m->nfunctions < 64 && entry(t, &m->functions[m->nfunctions++]);
	if (is(t, ".global") && m->nglobals < 16) {
		m->nglobals++;
		return variable(t, g->name, &g->size, &align) && !strcmp(next(t), ";");
	}
	return false;
}

/* ptx_read fills a module from a text and returns 0, or the line that is wrong. */
int ptx_read(struct module *m, const char *image)
{
	struct text t = {.at = image, .line = 1};

	while (*next(&t))
		if (!directive(&t, m))
			return t.line;
	return 0;
}

bool ptx_looks(const char *image)
{
	struct text t = {.at = image, .line = 1};

	return image[0] != 0x7f && !strcmp(next(&t), ".version");
}
