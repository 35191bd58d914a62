-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 12
-- @v1 mssql.NVarCharMax: total
-- @v2 mssql.VarCharMax: 20323530303331
-- @v3 mssql.NVarCharMax: customer
-- @v4 mssql.NVarCharMax: name
-- @v5 mssql.VarCharMax: 203034363939387e
-- @v6 mssql.VarCharMax: 203034363939387e
set nocount on;
set lock_timeout 10000;
select count_big(*)
from manifold_documents.[order-summary.12] as t
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v1 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v1)) as p1
outer apply (
	select convert(varbinary(400), case
		when d.digits = '' then ' 1'
		when u.negative = 1 then ' 0' + right('000' + convert(varchar(11), 5000 - d.magnitude), 4) + translate(d.digits, '0123456789', '9876543210') + '~'
		else ' 2' + right('000' + convert(varchar(11), 5000 + d.magnitude), 4) + d.digits
	end) as k
	from (select case when p1.type = 2 then convert(varchar(390), p1.value) end as number) as n
	cross apply (select case when left(n.number, 1) = '-' then 1 else 0 end as negative,
		case when left(n.number, 1) = '-' then substring(n.number, 2, 390) else n.number end as number) as u
	cross apply (select left(u.number, charindex('e', u.number + 'e') - 1) as mantissa,
		coalesce(try_convert(int, substring(u.number, charindex('e', u.number + 'e') + 1, 5)), 0) as exponent) as e
	cross apply (select replace(e.mantissa, '.', '') as digits, charindex('.', e.mantissa + '.') - 1 as whole) as m
	cross apply (select patindex('%[^0]%', m.digits + 'x') - 1 as zeros) as z
	cross apply (select replace(rtrim(replace(substring(m.digits, z.zeros + 1, 390), '0', ' ')), ' ', '0') as digits,
		m.whole - z.zeros + e.exponent as magnitude) as d
	where n.number is not null
) as n1
outer apply (select top (1) j.type, j.value from openjson(convert(nvarchar(max), t.document)) as j where j.[key] = @v3 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v3)) as p2
outer apply (select top (1) j.type, j.value from openjson(case when p2.type = 5 then p2.value end) as j where j.[key] = @v4 collate Latin1_General_100_BIN2 and datalength(j.[key]) = datalength(@v4)) as p3
outer apply (
	select convert(varbinary(400), case
		when d.digits = '' then ' 1'
		when u.negative = 1 then ' 0' + right('000' + convert(varchar(11), 5000 - d.magnitude), 4) + translate(d.digits, '0123456789', '9876543210') + '~'
		else ' 2' + right('000' + convert(varchar(11), 5000 + d.magnitude), 4) + d.digits
	end) as k
	from (select case when p3.type = 2 then convert(varchar(390), p3.value) end as number) as n
	cross apply (select case when left(n.number, 1) = '-' then 1 else 0 end as negative,
		case when left(n.number, 1) = '-' then substring(n.number, 2, 390) else n.number end as number) as u
	cross apply (select left(u.number, charindex('e', u.number + 'e') - 1) as mantissa,
		coalesce(try_convert(int, substring(u.number, charindex('e', u.number + 'e') + 1, 5)), 0) as exponent) as e
	cross apply (select replace(e.mantissa, '.', '') as digits, charindex('.', e.mantissa + '.') - 1 as whole) as m
	cross apply (select patindex('%[^0]%', m.digits + 'x') - 1 as zeros) as z
	cross apply (select replace(rtrim(replace(substring(m.digits, z.zeros + 1, 390), '0', ' ')), ' ', '0') as digits,
		m.whole - z.zeros + e.exponent as magnitude) as d
	where n.number is not null
) as n3
where t.tenant_id = @tenant and t.build = @build and t.id_bytes > 0x
and ((p1.type = 2 and n1.k > convert(varbinary(1002), @v2, 2))
and (t.[key customer.name] >= 0x20 and t.[key customer.name] <= convert(varbinary(1002), @v6, 2) and p3.type = 2 and n3.k <= convert(varbinary(1002), @v5, 2)))
option (recompile, maxdop 2, max_grant_percent = 10);
