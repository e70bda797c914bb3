#include "nvrtc.h"

#include <ctype.h>

void constant_add(struct source *s, const char *name, const char *text)
{
	for (int i = 0; i < s->nconstants; i++)
		if (!strcmp(s->constants[i].name, name)) {
			if (!strcmp(s->constants[i].text, text))
				return;
			free(s->constants[i].text);
			s->constants[i].text = strdup("?"); /* which one counts, only the preprocessor knows */
			return;
		}
	s->constants = realloc(s->constants, (s->nconstants + 1) * sizeof *s->constants);
	s->constants[s->nconstants++] = (struct constant){strdup(name), strdup(text)};
}

/* An expression that is computed. depth is that of constants within constants. */
struct sum { const struct source *source; const char *at; int depth; };

static bool operation(struct sum *e, int level, int64_t *to);

static void space(struct sum *e)
{
	while (isspace((unsigned char)*e->at))
		e->at++;
}

static bool whole(const struct source *s, const char *text, int depth, int64_t *to)
{
	struct sum e = {s, text, depth};

	if (depth > 16 || !operation(&e, 0, to))
		return false;
	space(&e);
	return !*e.at;
}

static bool literal(struct sum *e, int64_t *to)
{
	char *end;

	*to = strtoull(e->at, &end, 0);
	while (*end && strchr("uUlL", *end))
		end++;
	e->at = end;
	return !isalnum((unsigned char)*end) && *end != '.' && *end != '_';
}

static const struct { const char *name; int number; } named[] = {{"true", 1}, {"false", 0}, {"nullptr", 0}};

/* name computes a constant, whatever namespace it is in. */
static bool name(struct sum *e, int64_t *to)
{
	const char *from = e->at;
	size_t n = 0;

	for (; isalnum((unsigned char)*e->at) || *e->at == '_' || !strncmp(e->at, "::", 2); e->at++)
		if (*e->at == ':')
			from = ++e->at + 1;
	n = e->at - from;
	for (size_t i = 0; i < sizeof named / sizeof *named; i++)
		if (strlen(named[i].name) == n && !strncmp(named[i].name, from, n)) {
			*to = named[i].number;
			return true;
		}
	for (int i = 0; i < e->source->nconstants; i++) {
		const struct constant *c = &e->source->constants[i];

		if (strlen(c->name) == n && !strncmp(c->name, from, n))
			return whole(e->source, c->text, e->depth + 1, to);
	}
	return false;
}

static bool operand(struct sum *e, int64_t *to)
{
	space(e);
	if (*e->at == '-') {
		e->at++;
		return operand(e, to) && (*to = -(uint64_t)*to, true);
	}
	if (*e->at == '(') {
		e->at++;
		if (!operation(e, 0, to))
			return false;
		space(e);
		return *e->at++ == ')';
	}
	if (*e->at == '\'' && e->at[1] && e->at[1] != '\\' && e->at[2] == '\'') {
		*to = e->at[1];
		e->at += 3;
		return true;
	}
	return isdigit((unsigned char)*e->at) ? literal(e, to) : name(e, to);
}

/* operation computes operators that bind at least as strongly as those of a level: shifts, sums, products. */
static bool operation(struct sum *e, int level, int64_t *to)
{
	static const char *const operators[] = {"<>", "+-", "*/%"};
	int64_t by;

	if (level == 3)
		return operand(e, to);
	if (!operation(e, level + 1, to))
		return false;
	for (space(e); *e->at && strchr(operators[level], *e->at); space(e)) {
		char what = *e->at++;

		if (!level && *e->at++ != what)
			return false; /* a comparison */
		if (!operation(e, level + 1, &by) || (strchr("/%", what) && by < 1) || (!level && (by < 0 || by > 63)))
			return false;
		switch (what) {
		case '<': *to = (uint64_t)*to << by; break;
		case '>': *to >>= by; break;
		case '+': *to = (uint64_t)*to + by; break;
		case '-': *to = (uint64_t)*to - by; break;
		case '*': *to = (uint64_t)*to * by; break;
		case '/': *to /= by; break;
		case '%': *to %= by; break;
		}
	}
	return true;
}

bool number_whole(const struct source *s, const char *text, int64_t *to)
{
	return whole(s, text, 0, to);
}

/* real reads a number with a decimal point or an exponent. */
static bool real(const char *text, double *to)
{
	char *end;

	*to = strtod(text, &end);
	if (end == text)
		return false;
	end += *end && strchr("fFlL", *end);
	return !*end && (isdigit((unsigned char)text[strspn(text, "+-.")]));
}

bool number_store(const struct source *s, const char *text, char letter, size_t size, char *to)
{
	int64_t bits;
	double number;
	float single;
	bool exact = number_whole(s, text, &bits);

	if (exact)
		number = bits;
	else if (!real(text, &number) || (letter != 'd' && letter != 'f' && (number > 1e18 || number < -1e18)))
		return false;
	if (exact && !bits)
		return true; /* as it is before, whatever the type */
	if (!letter)
		return false;
	single = number;
	if (letter == 'd')
		memcpy(to, &number, sizeof number);
	else if (letter == 'f')
		memcpy(to, &single, sizeof single);
	else if (letter == 'b')
		*to = number != 0;
	else
		memcpy(to, exact ? &bits : &(int64_t){number}, size);
	return true;
}
