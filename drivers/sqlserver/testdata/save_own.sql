-- @tenant mssql.VarChar: 0190d3a4-5b6c-7def-8123-456789abcdef
-- @build int64: 3
-- @to int64: 9
-- @from int64: 5
-- @upserts mssql.NVarCharMax: [{"b":"61","v":9,"i":"a","d":"{}"}]
set nocount on;
set lock_timeout 10000;
set xact_abort on;
begin transaction;
update t set version = @to from manifold_documents.[documents] as t with (updlock, rowlock) where t.tenant_id = @tenant and t.build = @build and t.id_bytes = 0x and t.version = @from;
if @@rowcount = 1
begin
declare @b table (id_bytes varbinary(512) not null primary key, id nvarchar(512) not null, version bigint not null, document varchar(max) collate Latin1_General_100_BIN2_UTF8 not null);
insert into @b (id_bytes, id, version, document)
select convert(varbinary(512), j.id_bytes, 2), j.id, j.version, convert(varchar(max), j.document collate Latin1_General_100_BIN2_UTF8)
from openjson(@upserts) with (id_bytes varchar(1024) '$.b', id nvarchar(512) '$.i', version bigint '$.v', document nvarchar(max) '$.d') as j;
insert into manifold_documents.[documents] (tenant_id, build, id_bytes, id, version, document)
select @tenant, @build, b.id_bytes, b.id, b.version, b.document from @b as b
where not exists (select * from manifold_documents.[documents] as t where t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes)
option (loop join, force order);
if @@rowcount < (select count(*) from @b)
update t set version = b.version, document = b.document from @b as b
inner join manifold_documents.[documents] as t with (rowlock, forceseek) on t.tenant_id = @tenant and t.build = @build and t.id_bytes = b.id_bytes
where t.version < b.version
option (loop join, force order);
commit transaction;
select 1;
end
else
begin
rollback transaction;
select 0;
end;
