#include "sim.h"

#include "elf64.h"

/* As much of machine code as tells which kernels it has, with which parameters, and which variables. It is not run. */
enum { CUDA_MACHINE = 190, CUDA_ENTRY = 0x10, CUDA_MANAGED = 4 }; /* of the file, of a symbol's other bits */
enum { SIZED = 4, PARAMETER = 0x17, PARAMETER_2 = 0x45 }; /* in .nv.info.NAME: a format, and what it tells */

struct image {
	const char *bytes, *names;
	const Elf64_Shdr *sections;
	int n;
};

bool elf_looks(const void *image)
{
	const Elf64_Ehdr *e = image;

	return !memcmp(e->e_ident, ELFMAG, SELFMAG) && e->e_ident[EI_CLASS] == ELFCLASS64 && e->e_machine == CUDA_MACHINE &&
		e->e_shentsize == sizeof(Elf64_Shdr) && e->e_shstrndx < e->e_shnum;
}

/* elf_newer tells whether a compiler of CUDA 13 or newer has made the code for a driver of CUDA 12 or older. */
bool elf_newer(const void *image)
{
	return SIM_VERSION < 13000 && ((const Elf64_Ehdr *)image)->e_ident[EI_ABIVERSION] >= 8;
}

static const Elf64_Shdr *section(const struct image *i, const char *prefix, const char *name)
{
	size_t n = strlen(prefix);

	for (int k = 0; k < i->n; k++) {
		const char *is = i->names + i->sections[k].sh_name;

		if (!strncmp(is, prefix, n) && !strcmp(is + n, name))
			return &i->sections[k];
	}
	return 0;
}

/* parameters reads the offset and size of each parameter, in any order. */
static void parameters(const struct image *i, struct function *f)
{
	const Elf64_Shdr *s = section(i, ".nv.info.", f->name);
	const char *at = s ? i->bytes + s->sh_offset : 0, *end = s ? at + s->sh_size : 0;

	while (at && end - at >= 4) {
		unsigned char format = at[0], what = at[1];
		uint16_t value;
		struct { uint32_t index; uint16_t ordinal, offset; uint32_t bits; } p;

		memcpy(&value, at + 2, sizeof value);
		at += 4 + (format == SIZED ? value : 0);
		if (at > end || what == PARAMETER_2)
			f->untold = true;
		if (at > end || format != SIZED || what != PARAMETER || value < sizeof p)
			continue;
		memcpy(&p, at - value, sizeof p);
		if (p.ordinal >= MOST_PARAMS) {
			f->untold = true;
			continue;
		}
		f->params[p.ordinal] = (struct param){p.offset, p.bits >> 18};
		if (p.ordinal >= f->nparams)
			f->nparams = p.ordinal + 1;
	}
	f->untold |= !s;
}

/* addresses marks those of the values of a section that are addresses, which the driver would write there. */
static void addresses(const struct image *i, const char *name, const Elf64_Sym *s, char *bytes)
{
	const Elf64_Shdr *h = section(i, ".rela", name);
	const Elf64_Rela *r = h ? (const void *)(i->bytes + h->sh_offset) : 0;

	for (size_t n = 0; h && n < h->sh_size / sizeof *r; n++)
		if (r[n].r_offset >= s->st_value && r[n].r_offset + 8 <= s->st_value + s->st_size)
			memset(bytes + (r[n].r_offset - s->st_value), UNKNOWN_BYTE, 8);
}

/* variable reads one of those sections that hold variables. */
static void variable(const struct image *i, struct module *m, const char *name, const Elf64_Sym *s)
{
	const Elf64_Shdr *h = s->st_shndx < i->n ? &i->sections[s->st_shndx] : i->sections;
	const char *in = i->names + h->sh_name;
	struct global *g;

	if (strcmp(in, ".nv.global") && strcmp(in, ".nv.global.init") && strcmp(in, ".nv.constant3"))
		return;
	g = global_add(m, name, s->st_size);
	g->managed = s->st_other & CUDA_MANAGED;
	g->untold = !s->st_size; /* so NVRTC's double says it */
	if (h->sh_type == SHT_NOBITS || g->untold)
		return;
	if (s->st_value > h->sh_size || s->st_size > h->sh_size - s->st_value) {
		g->untold = true;
		return;
	}
	g->bytes = memcpy(malloc(s->st_size), i->bytes + h->sh_offset + s->st_value, s->st_size);
	addresses(i, in, s, g->bytes);
}

CUresult elf_read(struct module *m, const void *image)
{
	const Elf64_Ehdr *e = image;
	struct image i = {.bytes = image, .n = e->e_shnum};

	i.sections = (const void *)(i.bytes + e->e_shoff);
	i.names = i.bytes + i.sections[e->e_shstrndx].sh_offset;
	for (int k = 0; k < i.n; k++) {
		const Elf64_Shdr *s = &i.sections[k];
		const Elf64_Sym *symbols = (const void *)(i.bytes + s->sh_offset);

		if (s->sh_type != SHT_SYMTAB || s->sh_link >= (unsigned)i.n)
			continue;
		for (size_t n = 0; n < s->sh_size / sizeof *symbols; n++) {
			const char *name = i.bytes + i.sections[s->sh_link].sh_offset + symbols[n].st_name;

			if (ELF64_ST_TYPE(symbols[n].st_info) == STT_FUNC && symbols[n].st_other & CUDA_ENTRY)
				parameters(&i, function_add(m, name));
			else if (ELF64_ST_TYPE(symbols[n].st_info) == STT_OBJECT)
				variable(&i, m, name, &symbols[n]);
		}
	}
	return OK;
}
