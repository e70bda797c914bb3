/* The format of ELF files with 64 bits, as far as it is read here: elf.h is not on every system. */
#pragma once

#include <stdint.h>

#define ELFMAG "\177ELF"
enum {
	SELFMAG = 4, EI_CLASS = 4, EI_ABIVERSION = 8, ELFCLASS64 = 2, ELFDATA2LSB = 1, EV_CURRENT = 1, ET_EXEC = 2,
	SHT_PROGBITS = 1, SHT_SYMTAB = 2, SHT_STRTAB = 3, SHT_RELA = 4, SHT_NOBITS = 8, STT_OBJECT = 1, STT_FUNC = 2, STB_LOCAL = 0, STB_GLOBAL = 1,
};
#define ELF64_ST_INFO(bind, type) ((bind) << 4 | (type))
#define ELF64_ST_TYPE(info) ((info) & 15)

typedef struct {
	unsigned char e_ident[16];
	uint16_t e_type, e_machine;
	uint32_t e_version;
	uint64_t e_entry, e_phoff, e_shoff;
	uint32_t e_flags;
	uint16_t e_ehsize, e_phentsize, e_phnum, e_shentsize, e_shnum, e_shstrndx;
} Elf64_Ehdr;

typedef struct {
	uint32_t sh_name, sh_type;
	uint64_t sh_flags, sh_addr, sh_offset, sh_size;
	uint32_t sh_link, sh_info;
	uint64_t sh_addralign, sh_entsize;
} Elf64_Shdr;

typedef struct {
	uint32_t st_name;
	unsigned char st_info, st_other;
	uint16_t st_shndx;
	uint64_t st_value, st_size;
} Elf64_Sym;

typedef struct {
	uint64_t r_offset, r_info;
	int64_t r_addend;
} Elf64_Rela;
